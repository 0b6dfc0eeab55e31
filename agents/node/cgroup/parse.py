"""PURE: parses control files and /proc, and computes rates from two readings. Malformed text raises ValueError."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from slacktide.schemas.sample import Missing
from slacktide.streams.decisions.cpu_list import cpu_list

Reader: TypeAlias = Callable[[bytes], int]
LISTS_MAX = 64
_SHOWN_CHARS = 40
_DIGITS_MAX = 18  # fits in a record; a counter takes years to reach it


def number(text: bytes) -> int:
    """Parse a file with one non-negative integer."""
    word = text[:-1]  # kernel files end with a newline
    return int(word) if word.isdigit() and text[-1:] == b"\n" and len(word) <= _DIGITS_MAX else _digits(text.strip())


def field(key: bytes) -> Callable[[bytes], int]:
    """Return a reader of one line of a ``key value`` file, such as ``cpu.stat``. An absent line raises ValueError."""
    needle = b"\n" + key + b" "
    head = key + b" "
    length = len(head)

    def read(text: bytes) -> int:
        before = 0 if text.startswith(head) else text.find(needle) + 1
        if not before and not text.startswith(head):
            raise ValueError(f"malformed: no line {key.decode()!r}")
        start = before + length
        end = text.find(b"\n", start)
        if end < 0:  # no newline: the number may be cut off
            raise ValueError(f"malformed: the line {key.decode()!r} does not end")
        return _digits(text[start:end].strip())

    return read


def optional_field(key: bytes) -> Callable[[bytes], int | None]:
    """Like ``field``, but the reader returns None if the line is absent."""
    needle = b"\n" + key + b" "
    read = field(key)

    def read_optional(text: bytes) -> int | None:
        return read(text) if needle in text or text.startswith(needle[1:]) else None

    return read_optional


def busy_ticks(text: bytes) -> int:
    """Parse all CPUs' busy time in /proc/stat: user with guest, nice, system, irq, softirq; not iowait, not steal."""
    user, nice, system, _, _, irq, softirq = (_digits(word) for word in _all_cpus(text))
    return user + nice + system + irq + softirq


def idle_ticks(text: bytes) -> int:
    """Parse all CPUs' idle time from /proc/stat, iowait included."""
    times = _all_cpus(text)
    return _digits(times[3]) + _digits(times[4])


def stall_us(text: bytes) -> int:
    """Parse the total stall time: ``total`` in the line ``some`` of a PSI file."""
    words = _first_line(text).split()
    if len(words) < 5 or words[0] != b"some" or not words[4].startswith(b"total="):
        raise ValueError(f"malformed: the first line is {_shown(text)}, not 'some' and its total")
    return _digits(words[4][6:])


def full_stall_us(text: bytes) -> int:
    """Parse the total time in which all processes stalled: ``total`` in the line ``full`` of a PSI file."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 5 and words[0] == b"full" and words[4].startswith(b"total="):
            return _digits(words[4][6:])
    raise ValueError("malformed: no line 'full' with a total")


def schedstat_ns(text: bytes) -> tuple[int, int]:
    """Parse the time that a thread ran, and the time that it waited in a run queue, of /proc/TID/schedstat."""
    words = text.split()
    if len(words) < 2:
        raise ValueError(f"malformed: {_shown(text)} is not a time run and a time waited")
    return _digits(words[0]), _digits(words[1])


def thread_ids(text: bytes) -> list[int]:
    """Parse ``tasks`` or ``cgroup.threads``. 0: a thread of another PID namespace."""
    return [_digits(tid) for tid in text.split()]


_mem_total = field(b"MemTotal:")
_mem_available = field(b"MemAvailable:")


def used_bytes(text: bytes) -> int:
    """Parse the node's working set in bytes from /proc/meminfo, whose unit is kB: ``MemTotal - MemAvailable``."""
    plain = text.replace(b" kB\n", b"\n")
    return max(0, _mem_total(plain) - _mem_available(plain)) * 1024


def pressure_pct(kind: bytes) -> Callable[[bytes], float]:
    """Return a reader of ``avg10`` (percent) of ``some`` or ``full`` in a PSI file. Absent: raises ValueError."""

    def read(text: bytes) -> float:
        for line in text.splitlines():
            words = line.split()
            if words and words[0] == kind:
                if len(words) > 1 and words[1].startswith(b"avg10="):
                    whole, _, part = words[1][6:].partition(b".")
                    if not (whole + part).isdigit() or float(words[1][6:]) > 100:
                        raise ValueError(f"malformed: {_shown(words[1][6:])} is not a number of percent")
                    return float(words[1][6:])
                raise ValueError(f"malformed: no avg10 in {_shown(line)}")
        raise ValueError(f"malformed: no line {kind.decode()!r}")

    return read


def quota_us(text: bytes) -> int | None:
    """Read ``cpu.cfs_quota_us``: a positive integer, or -1 (None: unlimited)."""
    word = text.strip()
    if word == b"-1":
        return None
    return _positive(word)


def period_us(text: bytes) -> int:
    """Read ``cpu.cfs_period_us``: a positive integer."""
    return _positive(text.strip())


def cpu_max(text: bytes) -> tuple[int | None, int]:
    """Read ``cpu.max``, such as ``max 100000``: quota (None: unlimited) and period in microseconds."""
    words = text.split()
    if len(words) != 2:
        raise ValueError(f"malformed: {_shown(text)} is not a quota and a period")
    return (None if words[0] == b"max" else _positive(words[0])), _positive(words[1])


@lru_cache(maxsize=LISTS_MAX)
def cpus(text: bytes) -> frozenset[int]:
    """Read a CPU list such as ``0-3,6``; empty text is the empty set. Most pods of a node have the same few lists."""
    found = cpu_list(text.decode(errors="replace").strip())
    if found is None:
        raise ValueError(f"malformed: {_shown(text)} is not a list of CPUs")
    return frozenset(found)


def _all_cpus(text: bytes) -> list[bytes]:
    words = _first_line(text).split()
    if len(words) < 8 or words[0] != b"cpu":
        raise ValueError(f"malformed: the first line is {_shown(text)}, not 'cpu' and its times")
    return words[1:8]


def _first_line(text: bytes) -> bytes:
    end = text.find(b"\n")
    if end < 0:  # no newline: the last number may be cut off
        raise ValueError(f"malformed: the first line, {_shown(text)}, does not end")
    return text[:end]


def _digits(word: bytes) -> int:
    if not word.isdigit() or len(word) > _DIGITS_MAX:
        raise ValueError(f"malformed: {_shown(word)} is not a number")
    return int(word)


def _positive(word: bytes) -> int:
    value = _digits(word)
    if not value:
        raise ValueError("malformed: 0 is not a positive number of microseconds")
    return value


def _shown(text: bytes) -> str:
    shown = text[:_SHOWN_CHARS].decode(errors="replace")
    return repr(shown if len(text) <= _SHOWN_CHARS else shown + "…")


NO_PREVIOUS = "no previous reading"
RESET = "counter reset"
_What = tuple[str, str]
"""Pod uid ("": the node) and counter; formatted only if a figure is missing."""
_NODE_CPU: _What = ("", "cpu")
_CPU_MILLI_MAX = 1_000_000_000
"""More than any machine has: a higher rate means a wrong counter."""


class PodCounters(NamedTuple):
    """Counters of one pod's cgroup since its creation; None: unreadable. A tuple, since each sample creates many."""

    cpu_ns: int | None = None
    periods: int | None = None
    """0: never limited."""
    throttled_periods: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """All counters of one reading."""

    mono_ns: int
    cpu_ns: int | None
    """Busy time of all CPUs of the node."""
    pods: Mapping[str, PodCounters]


class PodRates(NamedTuple):
    """Rates of one pod between two readings. None: unknown; for periods: never limited."""

    cpu_milli: int | None = None
    periods: int | None = None
    throttled_periods: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Rates between two readings."""

    interval_ms: int
    cpu_milli: int | None
    pods: Mapping[str, PodRates]
    missing: list[Missing]
    """Why rates are None although their counters were read."""


def rates(before: Counters | None, now: Counters) -> Rates:
    """Compute rates since ``before``. A rate is None at the first reading, without elapsed time, or after a reset."""
    interval_ns = 0 if before is None else now.mono_ns - before.mono_ns
    if before is None or interval_ns <= 0:
        why = NO_PREVIOUS if before is None else "no time has passed since the previous reading"
        pods = dict.fromkeys(now.pods, PodRates())
        return Rates(interval_ms=0, cpu_milli=None, pods=pods, missing=[Missing(what="rates", why=why)])
    missing: list[Missing] = []
    cpu_milli = _milli(_NODE_CPU, before.cpu_ns, now.cpu_ns, interval_ns, missing)
    return Rates(
        interval_ms=interval_ns // 1_000_000,
        cpu_milli=cpu_milli,
        pods={uid: _pod(uid, before.pods.get(uid), pod, interval_ns, missing) for uid, pod in now.pods.items()},
        missing=missing,
    )


def _pod(uid: str, before: PodCounters | None, now: PodCounters, interval_ns: int, missing: list[Missing]) -> PodRates:
    if before is None:
        missing.append(Missing(what=f"pod {uid}", why=NO_PREVIOUS))
        return PodRates()
    cpu_milli = _milli((uid, "cpu"), before.cpu_ns, now.cpu_ns, interval_ns, missing)
    if not now.periods:
        return PodRates(cpu_milli=cpu_milli)
    throttled = _rise((uid, "throttled periods"), before.throttled_periods, now.throttled_periods, missing)
    periods = _rise((uid, "periods"), before.periods, now.periods, missing)
    return PodRates(cpu_milli=cpu_milli, periods=periods, throttled_periods=throttled)


def _rise(what: _What, before: int | None, now: int | None, missing: list[Missing]) -> int | None:
    if now is None:  # its reader has reported why
        return None
    if before is None or now < before:
        missing.append(Missing(what=_name_of(what), why=NO_PREVIOUS if before is None else RESET))
        return None
    return now - before


def _milli(what: _What, before: int | None, now: int | None, interval_ns: int, missing: list[Missing]) -> int | None:
    """Return the CPU use in millicores: 1000 is one CPU busy for the whole interval."""
    cpu_ns = _rise(what, before, now, missing)
    if cpu_ns is None:
        return None
    milli = round(cpu_ns * 1000 / interval_ns)
    if milli > _CPU_MILLI_MAX:
        missing.append(Missing(what=_name_of(what), why=f"implausible: {milli} millicores"))
        return None
    return milli


def _name_of(what: _What) -> str:
    uid, counter = what
    return f"pod {uid} {counter}" if uid else f"node {counter}"
