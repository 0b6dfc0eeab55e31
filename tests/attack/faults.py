"""A random schedule of faults, drawn from a seed, and how it is carried out on real processes."""

import concurrent.futures
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from attack.load import Load
from attack.system import System, policy_with
from testbed.brokers import KafkaBroker
from testbed.parts import Part

REPLAYED = "SLACKTIDE_SEED"
MEAN_GAP_S = 1.6
"""Between the beginnings of two faults."""
LASTS_S = {
    "kill agent": (0.1, 3.0),
    "pause agent": (0.3, 9.0),
    "kill worker": (0.1, 4.0),
    "pause worker": (0.5, 9.0),
    "restart worker": (0.1, 1.0),
    "kill broker": (0.1, 3.0),
    "pause broker": (0.3, 6.0),
    "change policy": (0.0, 0.1),
}
"""Kinds of faults, and for how long each holds."""
THRESHOLDS_PCT = 40, 90


def seed_of_this_run() -> int:
    """The one to replay, or a new one. It is printed: a failed run can be had again."""
    seed = int(os.environ.get(REPLAYED) or random.SystemRandom().randrange(1_000_000))
    sys.stdout.write(f"the schedule's seed: {REPLAYED}={seed}\n")
    return seed


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault: what, on which target, from when to when (seconds after the beginning)."""

    from_s: float
    until_s: float
    kind: str
    target: int

    @property
    def on(self) -> str:
        """Whom it is about."""
        return f"{self.kind.partition(' ')[2]} {self.target}"

    def __str__(self) -> str:
        return f"{self.from_s:5.1f} s to {self.until_s:5.1f} s: {self.kind} {self.target}"


def schedule(dice: random.Random, lasts_s: float, *, agents: int, workers: int, brokers: int) -> list[Fault]:
    """Draw faults. A target has one at a time, and only one broker is away."""
    counts = {"agent": agents, "worker": workers, "broker": brokers, "policy": 1}
    kinds = sorted(LASTS_S)
    busy_until_s: dict[tuple[str, int], float] = {}
    found: list[Fault] = []
    at_s = 1.0
    while at_s < lasts_s:
        kind = dice.choice(kinds)
        what = kind.partition(" ")[2]
        target = dice.randrange(counts[what])
        until_s = at_s + dice.uniform(*LASTS_S[kind])
        key = (what, 0 if what == "broker" else target)
        if busy_until_s.get(key, 0.0) < at_s:
            busy_until_s[key] = until_s + 1.0
            found.append(Fault(round(at_s, 1), round(until_s, 1), kind, target))
        at_s += dice.expovariate(1 / MEAN_GAP_S)
    return found


class Saboteur:
    """Carries a schedule out, and undoes all of it at the end."""

    def __init__(self, system: System, brokers: Sequence[KafkaBroker], dice: random.Random) -> None:
        self._system = system
        self._brokers = brokers
        self._dice = dice
        self.load = Load(system.nodes, dice)
        self._threads: dict[str, concurrent.futures.ThreadPoolExecutor] = {}
        """One for each target: what happens to it happens in its order, however long a start takes."""
        self._begun: dict[str, Callable[[int], object]] = {
            "kill agent": lambda number: system.agents[number].kill(),
            "pause agent": lambda number: system.agents[number].pause(),
            "kill worker": lambda number: system.workers[number].kill(),
            "pause worker": lambda number: system.workers[number].pause(),
            "restart worker": lambda number: system.workers[number].stop(),
            "kill broker": lambda number: brokers[number].stop(signal.SIGKILL),
            "pause broker": lambda number: os.kill(brokers[number].pid, signal.SIGSTOP),
            "change policy": self._change_policy,
        }

    def run(self, faults: Sequence[Fault]) -> None:
        """Begin and end each in its time; what nodes use changes all the while."""
        events = [(fault.from_s, fault.on, partial(self._begin, fault)) for fault in faults]
        events += [(fault.until_s, fault.on, partial(self._end, fault)) for fault in faults]
        began_s, doing = time.monotonic(), list[concurrent.futures.Future[None]]()
        for at_s, on, do in sorted(events, key=lambda event: event[0]):
            self.load.wait(at_s - (time.monotonic() - began_s))
            thread = self._threads.setdefault(on, concurrent.futures.ThreadPoolExecutor(1))
            doing.append(thread.submit(do))
        for each in doing:
            each.result()

    def pause_broker(self, number: int, lasts_s: float) -> None:
        """It stands still for a while."""
        pid = self._brokers[number].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(lasts_s)
        os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """Wait until all is done that was begun."""
        for thread in self._threads.values():
            thread.shutdown()

    def _begin(self, fault: Fault) -> None:
        self._begun[fault.kind](fault.target)

    def _end(self, fault: Fault) -> None:
        verb, what = fault.kind.split(" ")
        if what == "broker":
            self._mend(self._brokers[fault.target], killed=verb == "kill")
        elif what in {"agent", "worker"}:
            parts: Sequence[Part] = self._system.agents if what == "agent" else self._system.workers
            parts[fault.target].resume()
            parts[fault.target].start()

    def _mend(self, broker: KafkaBroker, *, killed: bool) -> None:
        if killed:
            broker.start()
        else:
            os.kill(broker.pid, signal.SIGCONT)

    def _change_policy(self, _: int) -> None:
        self._system.publish(policy_with(cpuSuppressThresholdPercent=self._dice.randrange(*THRESHOLDS_PCT)))
