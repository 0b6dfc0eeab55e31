"""A worker of the latency-sensitive service: an open loop of requests of about 5 ms of CPU each.

Arrivals are computed from a seed. Latency counts from the scheduled arrival, so it includes waiting. The worker imports
few modules, since its CPU use is measured. It prints latencies as JSON lines.
"""

import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

REQUEST_CPU_MS = 5.0
REPORT_EVERY_S = 0.25
RECORDS, RECORD_BYTES = 32, 128 << 10
"""Data read per request, if the service has data."""
MIB = 1 << 20


def arrivals(seed: int | str, phases: Iterable[Sequence[float]], start_s: float = 0.0) -> Iterator[float]:
    """Yield instants in seconds of a Poisson process whose rate changes by phase: (seconds, requests per second).

    Equal seeds give equal arrivals.
    """
    dice = random.Random(seed)  # noqa: S311 a load, not a secret
    phase_start_s, due = 0.0, dice.expovariate(1.0)
    for seconds, rate_per_s in phases:
        at_s, phase_end_s = phase_start_s, phase_start_s + seconds
        while rate_per_s > 0 and at_s + due / rate_per_s < phase_end_s:
            at_s += due / rate_per_s
            yield start_s + at_s
            due = dice.expovariate(1.0)
        due -= (phase_end_s - at_s) * rate_per_s
        phase_start_s = phase_end_s


def work(units: int) -> int:
    """Do one request's work: ``units`` of some hundred nanoseconds."""
    total = 0
    for number in range(units):
        total += number & 7
    return total


def calibrate(tries: int = 40) -> int:
    """Return the number of units that take 5 ms of CPU on an idle machine: the median of several tries.

    It uses thread CPU time, which excludes waiting for a CPU.
    """
    units = 20_000
    took_ns = []
    for _ in range(tries):
        start_ns = time.thread_time_ns()
        work(units)
        took_ns.append(time.thread_time_ns() - start_ns)
    return max(1, round(units * REQUEST_CPU_MS * 1e6 / sorted(took_ns)[tries // 2]))


def fill(path: str, size: int) -> None:
    """Write a file of this size; its pages are charged to the writer's cgroup."""
    with open(path, "wb") as file:  # noqa: PTH123 lean
        file.writelines(b"x" * MIB for _ in range(size // MIB))
        file.flush()
        os.fsync(file.fileno())


class Data:
    """The service's data in a file. Pages outside of the page cache are read from disk."""

    def __init__(self, path: str, seed: int) -> None:
        self._file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead, whatever the disk's setting
        self._records = os.fstat(self._file).st_size // RECORD_BYTES
        self._dice = random.Random(seed)  # noqa: S311 records, no secret

    def read(self) -> None:
        """Read the data of one request."""
        for _ in range(RECORDS):
            os.pread(self._file, RECORD_BYTES, self._dice.randrange(self._records) * RECORD_BYTES)


def serve(units: int, play_file: str, number: int, data_file: str | None = None) -> None:
    """Serve requests in order of arrival, until killed. A new play replaces future arrivals.

    A play is a JSON file that is replaced atomically: ``start_s`` (monotonic), ``seed``, ``phases``.
    """
    data = None if data_file is None else Data(data_file, number)
    coming: Iterator[float] = iter(())
    next_s: float | None = None
    late: deque[float] = deque()
    done: list[tuple[float, float]] = []
    play_changed_ns, reported_s = 0, 0.0
    while True:
        now_s = time.monotonic()
        if now_s - reported_s >= REPORT_EVERY_S:
            reported_s = now_s
            if done:
                os.write(1, json.dumps(done).encode() + b"\n")
                done.clear()
            changed_ns = os.stat(play_file).st_mtime_ns if os.path.exists(play_file) else 0  # noqa: PTH110, PTH116 lean
            if changed_ns != play_changed_ns:
                play_changed_ns = changed_ns
                with open(play_file, encoding="utf-8") as file:  # noqa: PTH123 lean
                    play = json.load(file)
                coming = arrivals(f"{play['seed']}/{number}", play["phases"], play["start_s"])
                next_s = next(coming, None)
        while next_s is not None and next_s <= now_s:
            late.append(next_s)
            next_s = next(coming, None)
        if late:
            arrival_s = late.popleft()
            work(units)
            if data is not None:
                data.read()
            done.append((round(arrival_s, 6), round((time.monotonic() - arrival_s) * 1000, 3)))
        else:
            time.sleep(REPORT_EVERY_S if next_s is None else min(REPORT_EVERY_S, next_s - now_s))


def main() -> None:
    """Serve with ``ls_worker UNITS PLAY_FILE NUMBER [DATA_FILE]``.

    ``ls_worker calibrate`` prints the units of a request, ``ls_worker fill DATA_FILE BYTES`` writes the data.
    """
    if sys.argv[1] == "calibrate":
        print(calibrate())
    elif sys.argv[1] == "fill":
        fill(sys.argv[2], int(sys.argv[3]))
    else:
        serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])


if __name__ == "__main__":
    main()
