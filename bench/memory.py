"""Figures: what a worker holds in memory for a fleet whose windows of 30 minutes are full."""

import time
from collections.abc import Iterator

from bench import admin, log, loop, send
from bench.fleet import PODS, name_of
from bench.process import Slacktide
from bench.rig import Rig, wait
from bench.rows import Row, judged
from bench.stamp import Stamped, StampedNode
from slacktide.agents.clock import SystemClock
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import COMMAND, SAMPLE

RSS_MB = {1_000: 350.0, 10_000: 900.0}
BRIEF_NODES = 100
WINDOW_S = 1_800
STEP_S = 30
"""Between a node's samples while windows fill: each stands for all that time."""
LIVE_ROUNDS = 10
"""Then a second apart, as usual."""
ROUND_S = 300.0
SETTLE_S = 3.0


def measure(rig: Rig) -> list[Row]:
    """The small fleet, then the large one, each with a worker of its own."""
    targets = {BRIEF_NODES: RSS_MB[1_000]} if rig.brief else RSS_MB
    return [_row(rig, nodes, rss_mb) for nodes, rss_mb in targets.items()]


def rounds(nodes: int, policy: Policy, now_ms: int) -> Iterator[list[Stamped]]:
    """Each round has a sample of every node: half an hour in large steps, then some seconds.

    One step more than the half hour has: a node's first sample covers nothing.
    """
    fleet = [StampedNode(number, policy) for number in range(nodes)]
    steps_s = [STEP_S] * (WINDOW_S // STEP_S + 1) + [1] * LIVE_ROUNDS
    at_ms = now_ms - sum(steps_s) * 1000
    for step_s in steps_s:
        at_ms += step_s * 1000
        yield [node.stamp(at_ms, step_s * 1000) for node in fleet]


def _row(rig: Rig, nodes: int, target_mb: float) -> Row:
    bootstrap = rig.kafka().bootstrap
    # Else half an hour of event time would be half an hour of silence.
    admin.set_up(bootstrap, (SAMPLE,), admin.STAMPED_BY_LOG)
    policy = log.USUAL_POLICY
    rig.say(f"memory: {nodes} nodes, half an hour of event time")
    with loop.worker(rig, bootstrap, policy=policy) as worker:
        empty_mb, begin_s, sent = worker.rss_mb(), time.monotonic(), 0
        for number, records in enumerate(rounds(nodes, policy, SystemClock().wall_ms())):
            # A round ahead of the worker and no more: what waits for it lies in the log, not in its memory.
            log.wait_for(bootstrap, COMMAND, sent, ROUND_S, worker)
            sent += send.write(bootstrap, SAMPLE.name, records)
            if number % 10 == 0:
                rig.say(f"memory: {nodes} nodes, round {number}, {worker.rss_mb():.0f} MB")
        log.wait_for(bootstrap, COMMAND, sent, ROUND_S, worker)
        wait(SETTLE_S, worker)
        return _judged(bootstrap, worker, nodes, target_mb, empty_mb, time.monotonic() - begin_s)


def _judged(bootstrap: str, worker: Slacktide, nodes: int, target_mb: float, empty_mb: float, seconds: float) -> Row:
    rss_mb, largest_mb = worker.rss_mb(), worker.peak_rss_mb()
    covered = coverage(log.metrics(bootstrap, name_of(0))[-1])
    said = ", ".join(f"{covered_ms / 1000:.0f} of {window_ms / 1000:.0f} s" for window_ms, covered_ms in covered)
    return judged(
        f"worker, {nodes:,} nodes, {PODS} pods each: RSS",
        f"<= {target_mb:g} MB",
        f"{largest_mb:.0f} MB at most, {rss_mb:.0f} MB at the end, {empty_mb:.0f} MB empty; windows cover {said}; "
        f"took {seconds:.0f} s",
        met=largest_mb <= target_mb,
        n=1,
        largest_mb=largest_mb,
        rss_mb=rss_mb,
        empty_mb=empty_mb,
        covered_ms=covered,
    )


def coverage(metric: NodeMetric) -> list[tuple[int, int]]:
    """Of each window of a node its length and how much of it is covered, in milliseconds."""
    return [(metric.window_ms, metric.covered_ms), *((one.window_ms, one.covered_ms) for one in metric.aggregates)]
