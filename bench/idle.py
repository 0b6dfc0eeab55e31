"""Figure: what a worker costs when there is little to do: 100 nodes, a sample a second each."""

from __future__ import annotations

import statistics
import time

from bench import admin, log, loop
from bench.generator import HISTORY_STEP_S
from bench.process import Running
from bench.rig import Rig, wait
from bench.rows import Row, judged
from slacktide.schemas.topics import SAMPLE

NODES = 100
WARM_UP_S, EACH_S, RUNS = 10.0, 10.0, 3
HISTORY_S = 1_800
"""So that all windows are full."""
CAUGHT_UP_S = 120.0
CORE_PCT = 3.0
ANSWERS = "slacktide_stream_answers_total"


def measure(rig: Rig) -> list[Row]:
    """One worker, three stretches."""
    bootstrap = rig.kafka().bootstrap
    admin.set_up(bootstrap, (SAMPLE,), admin.STAMPED_BY_LOG)
    rig.say(f"idle: {NODES} nodes, {WARM_UP_S + RUNS * EACH_S:.0f} s")
    policy = log.USUAL_POLICY
    with (
        loop.worker(rig, bootstrap, policy=policy) as worker,
        loop.fleet(rig, bootstrap, NODES, policy=policy, history_s=HISTORY_S) as fleet,
    ):
        log.wait_caught_up(bootstrap, NODES * HISTORY_S // HISTORY_STEP_S, CAUGHT_UP_S, worker, fleet)
        wait(WARM_UP_S, worker, fleet)
        before = worker.metric(ANSWERS)
        found = [_stretch(worker, fleet) for _ in range(RUNS)]
        answered, rss_mb = worker.metric(ANSWERS) - before, worker.rss_mb()
    core_pct = statistics.median(found)
    said = f"median {core_pct:.1f}%, each " + ", ".join(f"{pct:.1f}%" for pct in found)
    return [
        judged(
            f"worker, {NODES} nodes at 1 Hz: CPU time",
            f"<= {CORE_PCT:g}% of a core",
            f"{said}; {answered:.0f} answered, {rss_mb:.0f} MB",
            met=core_pct <= CORE_PCT,
            n=RUNS,
            core_pct=core_pct,
            runs=found,
            rss_mb=rss_mb,
        )
    ]


def _stretch(worker: Running, fleet: Running) -> float:
    cpu_s, begin_s = worker.cpu_s(), time.monotonic()
    wait(EACH_S, worker, fleet)
    return 100 * (worker.cpu_s() - cpu_s) / (time.monotonic() - begin_s)
