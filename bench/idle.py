"""Figure: what a worker costs when there is little to do: 100 nodes, a sample a second each.

With ``--against`` that of another checkout runs in the same seconds, on a Kafka of its own.
"""

import contextlib
import statistics
import time
from pathlib import Path

from bench import admin, log, loop
from bench.generator import HISTORY_STEP_S
from bench.process import Running, Slacktide
from bench.rig import Rig, wait
from bench.rows import Row, judged, told
from slacktide.schemas.topics import SAMPLE
from testbed.brokers import KafkaBroker, running

NODES = 100
WARM_UP_S, EACH_S, RUNS = 10.0, 10.0, 5
HISTORY_S = 1_800
"""So that all windows are full."""
CAUGHT_UP_S = 120.0
CORE_PCT = 3.0
ANSWERS = "slacktide_stream_answers_total"


def measure(rig: Rig) -> list[Row]:
    """One worker, or two, some stretches."""
    rig.say(f"idle: {NODES} nodes, {WARM_UP_S + RUNS * EACH_S:.0f} s")
    bootstraps = [rig.kafka().bootstrap]
    with contextlib.ExitStack() as stack:
        if rig.against is not None:
            other = stack.enter_context(running(KafkaBroker))
            other.apply_topics()
            bootstraps.append(other.bootstrap)
        pairs = [
            _begun(rig, bootstrap, checkout, stack)
            for bootstrap, checkout in zip(bootstraps, (None, rig.against), strict=False)
        ]
        alive = [process for pair in pairs for process in pair]
        for bootstrap in bootstraps:
            log.wait_caught_up(bootstrap, NODES * HISTORY_S // HISTORY_STEP_S, CAUGHT_UP_S, *alive)
        wait(WARM_UP_S, *alive)
        workers = [worker for worker, _ in pairs]
        before = workers[0].metric(ANSWERS)
        found = [_stretch(workers, alive) for _ in range(RUNS)]
        answered, rss_mb = workers[0].metric(ANSWERS) - before, workers[0].rss_mb()
    rows = [_judged([run[0] for run in found], answered, rss_mb)]
    return rows if rig.against is None else [*rows, _against(found)]


def _begun(rig: Rig, bootstrap: str, checkout: Path | None, stack: contextlib.ExitStack) -> tuple[Slacktide, Running]:
    policy = log.USUAL_POLICY
    admin.set_up(bootstrap, (SAMPLE,), admin.STAMPED_BY_LOG)
    worker = stack.enter_context(loop.worker(rig, bootstrap, policy=policy, checkout=checkout))
    fleet = loop.fleet(rig, bootstrap, NODES, policy=policy, history_s=HISTORY_S)
    return worker, stack.enter_context(fleet)


def _stretch(workers: list[Slacktide], alive: list[Running]) -> list[float]:
    cpu_s, begin_s = [one.cpu_s() for one in workers], time.monotonic()
    wait(EACH_S, *alive)
    took_s = time.monotonic() - begin_s
    return [100 * (one.cpu_s() - before_s) / took_s for one, before_s in zip(workers, cpu_s, strict=True)]


def _judged(found: list[float], answered: float, rss_mb: float) -> Row:
    core_pct = statistics.median(found)
    said = f"median {core_pct:.1f}%, each " + ", ".join(f"{pct:.1f}%" for pct in found)
    return judged(
        f"worker, {NODES} nodes at 1 Hz: CPU time",
        f"<= {CORE_PCT:g}% of a core",
        f"{said}; {answered:.0f} answered, {rss_mb:.0f} MB",
        met=core_pct <= CORE_PCT,
        n=RUNS,
        core_pct=core_pct,
        runs=found,
        rss_mb=rss_mb,
    )


def _against(found: list[list[float]]) -> Row:
    ratios = [ours / theirs for ours, theirs in found]
    core_pct, ratio = statistics.median(theirs for _, theirs in found), statistics.median(ratios)
    return told(
        f"worker of the other checkout in the same seconds, {NODES} nodes",
        f"median {core_pct:.1f}%; CPU time against it {ratio:.2f} x: " + ", ".join(f"{one:.2f}" for one in ratios),
        n=RUNS,
        core_pct=core_pct,
        ratio=ratio,
        ratios=ratios,
    )
