"""Searches the constants of ``cpu_pressure`` in a model; docs/pressure.md has the table.

Run ``python bench/gate_space.py``. The model has steps of 1 ms. Requests arrive at random, at 15% of the node and
in spikes at 45%. Each takes 1 ms. A request takes an idle CPU. Where best-effort work holds all of them, it waits on
one: behind the requests there, and up to 1 or 3 ms until that work is preempted. In the control, stopping best-effort
work does not take away the wait.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
from collections import deque
from collections.abc import Iterator
from unittest import mock

from slacktide.schemas.sample import PressureGate, PressureLook
from slacktide.streams.decisions.suppress import cpu_pressure

CPUS, SECONDS, LOOK_MS = 4, 30, 100
LOW, HIGH = 0.15, 0.45


class Run:
    """One run: latencies in ms, best-effort work as a share of the node, and cuts a minute."""

    def __init__(self, *, seed: int, gated: bool, batch: bool, innocent: bool, preempt_ms: int) -> None:
        self._preempt_ms = preempt_ms
        self._dice = random.Random(seed)
        self._gated, self._batch, self._innocent = gated, batch, innocent
        self._queues: list[deque[int]] = [deque() for _ in range(CPUS)]
        self._until = [0] * CPUS
        self._gate = PressureGate()
        self._counts = [0, 0, 0, 0]
        self.latencies: list[int] = []
        self.work = self.cuts = 0

    def run(self) -> Run:
        for now in range(SECONDS * 1_000):
            load = HIGH if now % 2_000 > 1_500 else LOW
            for _ in range(CPUS):
                if self._dice.random() < load:
                    self._arrive(now)
            self._serve(now)
            if now % LOOK_MS == LOOK_MS - 1:
                self._look()
        return self

    def _arrive(self, now: int) -> None:
        busy = self._batch and not self._gate.closed
        free = [cpu for cpu, queue in enumerate(self._queues) if not queue]
        cpu = self._dice.choice(free) if free and not busy else self._dice.randrange(CPUS)
        if not self._queues[cpu] and (busy or self._innocent):
            self._until[cpu] = now + self._dice.randint(0, self._preempt_ms)
        self._queues[cpu].append(now)

    def _serve(self, now: int) -> None:
        waits = False
        for cpu, queue in enumerate(self._queues):
            if queue and now >= self._until[cpu]:
                self.latencies.append(now - queue.popleft() + 1)
                self._counts[0] += 1
            elif self._batch and not self._gate.closed:
                self._counts[1] += 1
                self.work += 1
            else:
                self._counts[2] += 1
            waits = waits or bool(queue)
        self._counts[3] += waits

    def _look(self) -> None:
        ran, batch, idle, stall = self._counts
        self._counts = [0, 0, 0, 0]
        look = PressureLook(
            span_us=LOOK_MS * 1_000,
            ls_cpu_us=ran * 1_000,
            be_cpu_us=batch * 1_000,
            idle_us=idle * 1_000,
            cpu_stall_us=stall * 1_000,
        )
        step = cpu_pressure.step(self._gate, look)
        if self._gated:
            self._gate = step.gate
            self.cuts += step.bound == "cut"


def _print(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")


def p99(latencies: list[int]) -> float:
    return statistics.quantiles(latencies, n=100)[98]


def means(
    *, seeds: int, preempt_ms: int, gated: bool = True, batch: bool = True, innocent: bool = False
) -> list[float]:
    """Mean and p99 latency in ms, best-effort work in percent of the node, cuts a minute."""
    runs = [
        Run(seed=seed, gated=gated, batch=batch, innocent=innocent, preempt_ms=preempt_ms).run()
        for seed in range(seeds)
    ]
    node = CPUS * SECONDS * 1_000
    return [
        statistics.mean(statistics.mean(run.latencies) for run in runs),
        statistics.mean(p99(run.latencies) for run in runs),
        statistics.mean(100 * run.work / node for run in runs),
        statistics.mean(run.cuts * 60 / SECONDS for run in runs),
    ]


def main(seeds: int) -> None:
    for preempt_ms in (1, 3):
        _print(f"preempted within {preempt_ms} ms; columns: mean and p99 in ms, work in %, cuts a minute")
        row = "{:5.2f} {:5.2f} {:5.1f} {:6.1f}".format
        _print("alone            ", row(*means(seeds=seeds, preempt_ms=preempt_ms, gated=False, batch=False)))
        _print("not gated        ", row(*means(seeds=seeds, preempt_ms=preempt_ms, gated=False)))
        _print("rise line learned | the cause               | not the cause")
        for given in _space():
            with mock.patch.multiple(cpu_pressure, **given):
                guilty = means(seeds=seeds, preempt_ms=preempt_ms)
                innocent = means(seeds=seeds, preempt_ms=preempt_ms, innocent=True)
            _print("{:4d} {:4d} {:7d}".format(*given.values()), "|", row(*guilty), "|", row(*innocent))


def _space() -> Iterator[dict[str, int]]:
    for rise, line, learned in itertools.product((1_200, 1_500, 2_000, 3_000), (100, 400, 800), (3, 5, 10)):
        if learned == 5 or (rise, line) == (1_500, 400):
            yield {"RISE_PERMILLE": rise, "LINE_PERMILLE_MIN": line, "LEARNED_LOOKS": learned}


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
