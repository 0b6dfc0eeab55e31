"""A long run with light faults: memory, descriptors, threads and folders of each process must not grow.

``make soak``; ``ARGS="--minutes 60"`` for longer. Prints progress and a table, writes a report, exits with 1 on growth.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from attack.faults import Saboteur, seed_of_this_run
from attack.growth import LIMITS, Growth, growth
from attack.system import System
from testbed import rungs
from testbed.brokers import KafkaBroker, running
from testbed.history import checks
from testbed.one_machine import VirtualNode
from testbed.parts import Part

LOOK_S, TELL_S, FAULT_S = 5.0, 30.0, 20.0
NODES, PARTITIONS = 4, 4
PODS_MAX = 12
CHURN = "churn-"
Series = dict[tuple[str, str], list[tuple[float, float]]]
"""By process and figure."""


class Churn:
    """Light faults, one at a time: a worker leaves and returns, the broker stands still, pods come and go."""

    def __init__(self, system: System, broker: KafkaBroker, dice: random.Random) -> None:
        self._system, self._dice = system, dice
        self.saboteur = Saboteur(system, [broker], dice)
        self._pods = 0
        self._kinds: list[Callable[[], str]] = [self._rebalance, self._reconnect, self._pod, self._pod, self._pod]

    def one(self) -> str:
        """Do one; what it was."""
        return self._dice.choice(self._kinds)()

    def _rebalance(self) -> str:
        part = self._system.workers[-1]
        part.stop()
        part.start()
        return f"{part.name} restarted"

    def _reconnect(self) -> str:
        lasts_s = self._dice.uniform(0.5, 3.0)
        self.saboteur.pause_broker(0, lasts_s)
        return f"the broker stood still for {lasts_s:.1f} s"

    def _pod(self) -> str:
        self._pods += 1
        node = self._dice.choice(self._system.nodes)
        return f"{node.name}: {exchange_pod(node, f'{CHURN}{self._pods}')}"


def exchange_pod(node: VirtualNode, name: str) -> str:
    """A best-effort pod comes; where there are many, the oldest of those that came goes first."""
    came = [one for one in node.pod_names() if one.startswith(CHURN)]
    gone = came[0] if len(came) >= PODS_MAX else ""
    if gone:
        node.remove_batch(gone)
    node.add_batch(name)
    return f"pod {name} came" + (f", {gone} went" if gone else "")


def look(part: Part, state: Path | None) -> dict[str, float]:
    """What a process has now."""
    files = [path for path in state.rglob("*") if path.is_file()] if state is not None else []
    return {
        "rss_mb": part.rss_mb,
        "descriptors": float(part.process.num_fds()),
        "threads": float(part.process.num_threads()),
        "files": float(len(files)),
        "folder_mb": sum(path.stat().st_size for path in files if path.exists()) / 1e6,
    }


def tell(text: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def measure(system: System, broker: KafkaBroker, dice: random.Random, lasts_s: float) -> Series:
    """Look at all processes that are not restarted, while faults go on."""
    churn, series = Churn(system, broker, dice), defaultdict[tuple[str, str], list[tuple[float, float]]](list)
    watched = [part for part in system.parts if part is not system.workers[-1]]
    begun_s = time.monotonic()
    told_s = fault_s = 0.0
    while (now_s := time.monotonic() - begun_s) < lasts_s:
        for part in watched:
            assert part.running, f"{part.name} ended:\n{part.last_words()}"
            for figure, value in look(part, system.state_of(part)).items():
                series[part.name, figure].append((now_s, value))
        left = len(list(system.temporary.iterdir()))
        series["all", "files"].append((now_s, float(left)))
        if now_s - fault_s >= FAULT_S:
            fault_s = now_s
            tell(f"[{now_s:5.0f} s] {churn.one()}")
        if now_s - told_s >= TELL_S:
            told_s = now_s
            rss = ", ".join(f"{part.name} {part.rss_mb:.0f} MB" for part in watched)
            tell(f"[{now_s:5.0f} s of {lasts_s:.0f}] {rss}")
        churn.saboteur.load.wait(LOOK_S)
    return series


def table(found: list[Growth]) -> str:
    """One line per process and figure."""
    lines = [f"{'process':<16} {'figure':<12} {'first':>8} {'last':>8} {'grown':>8} {'allowed':>8}"]
    lines += [
        f"{one.process:<16} {one.figure:<12} {one.first:>8.1f} {one.last:>8.1f} {one.grown:>8.1f} {one.allowed:>8.1f}"
        + ("  GROWS" if one.too_much else "")
        for one in found
    ]
    return "\n".join(lines)


def soak(minutes: float, report: Path) -> int:
    """Run; 0 where nothing grew and no invariant is broken."""
    seed = seed_of_this_run()
    with tempfile.TemporaryDirectory(prefix="slacktide-soak-") as folder, running(KafkaBroker) as broker:
        broker.apply_topics(PARTITIONS)
        with System(Path(folder), broker.bootstrap, nodes=NODES) as system:
            series = measure(system, broker, random.Random(seed), minutes * 60)
            system.heal()
            system.wait_quiet()
            verdicts = checks.judge(system.history())
    found = [growth(process, figure, points) for (process, figure), points in series.items()]
    sys.stdout.write(f"{table(found)}\n\n{checks.report(verdicts)}\n")
    limits = {figure: asdict(limit) for figure, limit in LIMITS.items()}
    invariants = {each.invariant: [each.checked, len(each.broken)] for each in verdicts}
    told = {"minutes": minutes, "seed": seed, "limits": limits, "growth": list(map(asdict, found))}
    report.write_text(json.dumps(told | {"invariants": invariants}, indent=2) + "\n")
    wrong = [f"{one.process}: {one.figure}" for one in found if one.too_much] + checks.broken(verdicts)
    sys.stdout.write(f"{'failed: ' + '; '.join(wrong) if wrong else 'nothing grew'}; written to {report}\n")
    return bool(wrong)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Run for long, with light faults, and fail on growth.")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--report", type=Path, default=Path("soak.json"), metavar="FILE")
    asked = parser.parse_args()
    if (lack := rungs.lacks_kafka()) is not None:
        sys.exit(f"lacks {lack}")
    sys.exit(soak(asked.minutes, asked.report))


if __name__ == "__main__":
    main()
