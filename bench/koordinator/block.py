"""One block of the comparison: one system alone on the node, a long stretch under load, then steps of the load."""

import random
import statistics
import time
from pathlib import Path

from bench.koordinator.pods import BATCH, BATCH_MILLI, Pods
from bench.koordinator.records import Block, Part, Step
from bench.koordinator.systems import Start, System, cost
from bench.koordinator.watch import Watch, first_s, held
from bench.rig import CannotRunError, Rig
from slacktide.deploy.demo.figures import percentile
from testbed.cluster.koordinator_record import METRICS
from testbed.cluster.real_node import RealNode

STEADY_S, STEPS, BEFORE_S, ON_S, OFF_S = 210.0, 10, 15.0, 4.0, 8.5
BRIEF_STEADY_S, BRIEF_STEPS = 20.0, 2
READY_S = 240.0
SETTLED_US, CHANGED_PART = 4_000, 0.1
"""A fall of the limit, and a change of what the Node offers, that count."""
PERIOD_US = 100_000


def block(rig: Rig, node: RealNode, start: Start, proc: Path, pods: Pods) -> Block:
    """Let a system run alone, and measure it."""
    forget(node)
    pods.load(on=False)
    with start(rig, node, proc) as system, Watch(node) as watch:
        rig.say(f"koordinator: {system.name} alone")
        await_offer(rig, node, watch, system)
        if not pods.has_batch:
            pods.start_batch()
        node.wait(
            lambda: held(watch.quota_us, time.monotonic()) is not None, f"{system.name} limits batch work", READY_S
        )
        time.sleep(BEFORE_S)
        steady_s = BRIEF_STEADY_S if rig.brief else STEADY_S
        began_s, before = time.monotonic(), _costs(system)
        offered = held(watch.batch_milli, began_s)
        pods.load(on=True)
        time.sleep(steady_s)
        passed_s, after = time.monotonic() - began_s, _costs(system)
        pods.load(on=False)
        pods.renew_service()
        time.sleep(OFF_S)
        served, used_s, stepping_s = len(pods.served()), pods.used_s(*BATCH), time.monotonic()
        steps = [_step(watch, pods) for _ in range(BRIEF_STEPS if rig.brief else STEPS)]
        seconds = pods.served()[served:]
        parts = {name: Part(100 * (after[name][0] - before[name][0]) / passed_s, after[name][1]) for name in before}
        return Block(
            system=system.name,
            load_1m=float(rig.conditions()["load_1m"]),
            on_node={name: parts[name] for name in system.on_node},
            central={name: parts[name] for name in system.central},
            steps=steps,
            offered_s=first_s(watch.batch_milli, began_s, lambda now: _differs(offered, now)),
            metric_age_s=[(percentile(watch.age_ms, at) or 0) / 1000 for at in (50, 90)],
            p99_ms=statistics.median(one["p99_us"] for one in seconds) / 1000,
            batch_cores=(pods.used_s(*BATCH) - used_s) / (time.monotonic() - stepping_s),
        )


def forget(node: RealNode) -> None:
    """Take from the Node what the system before wrote."""
    names = [f"kubernetes.io/{tier}-{kind}" for tier in ("batch", "mid") for kind in ("cpu", "memory")]
    gone = dict.fromkeys(names)
    node.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"allocatable": gone, "capacity": gone}})
    if node.exists(f"{METRICS}/{node.name}"):
        node.delete(f"{METRICS}/{node.name}")
    (node.best_effort("cpu") / "cpu.cfs_quota_us").write_text("-1")


def await_offer(rig: Rig, node: RealNode, watch: Watch, system: System) -> None:
    """Wait until the Node offers more batch CPU than runs there, which Slacktide never goes below.

    Raises:
        CannotRunError: it does not, in time.

    """
    until_s = time.monotonic() + READY_S
    while (held(watch.batch_milli, time.monotonic()) or 0) <= BATCH_MILLI:
        if time.monotonic() > until_s:
            raise CannotRunError(f"{system.name} offers nothing on the Node within {READY_S:g} s")
        time.sleep(0.25)
    rig.say(f"koordinator: {system.name} offers {held(watch.batch_milli, time.monotonic())} milli-CPU")


def _costs(system: System) -> dict[str, tuple[float, float]]:
    return cost(system.on_node | system.central)


def _differs(before: int | None, now: int | None) -> bool:
    return before is not None and now is not None and abs(now - before) >= CHANGED_PART * before


def _step(watch: Watch, pods: Pods) -> Step:
    time.sleep(random.random())
    before_us = held(watch.quota_us, time.monotonic()) or PERIOD_US * 2
    used_s, began_s = pods.load_used_s(), time.monotonic()
    pods.load(on=True)
    time.sleep(ON_S + random.random())
    ended_s = time.monotonic()
    cores = (pods.load_used_s() - used_s) / (ended_s - began_s)
    pods.load(on=False)
    half_us = before_us - 0.5 * cores * PERIOD_US
    changes = [(at_s, value) for at_s, value in watch.quota_us if at_s < ended_s]
    time.sleep(OFF_S)
    return Step(
        first_s(changes, began_s, lambda now: now is not None and now < before_us - SETTLED_US),
        first_s(changes, began_s, lambda now: now is not None and now <= half_us),
    )
