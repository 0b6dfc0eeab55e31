"""Figure: sample taken -> limit in the kernel, through Apache Kafka, with 100 other nodes' samples beside it."""

from collections import Counter
from dataclasses import dataclass

from bench import log, loop
from bench.node import NAME, node
from bench.plan import wobble
from bench.rig import CannotRunError, Rig, wait
from bench.rows import Row, judged, told
from slacktide.agents.clock import SystemClock
from slacktide.deploy.demo.figures import percentile

FLEET = 100
INTERVAL_S = 0.25
"""Four times as fast as usual, for as many more samples in the same time."""
WARM_UP_S, MEASURED_S = 6.0, 32.0
N_MIN = 60
P50_MS, P99_MS = 20, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run."""

    ages_ms: list[int]
    """Of outcomes that the stream decided: sample taken to limit read back."""
    results: Counter[str]
    decided_ms: list[int]
    """Of all nodes' answers: sample taken to the worker's turn."""
    guarded: int
    """Outcomes that the guard decided."""
    worker_us: float
    """CPU time of the worker per sample answered, idle time included."""
    answered_per_s: float


def measure(rig: Rig) -> list[Row]:
    """With the worker's CPU time."""
    found = _run(rig)
    rate = f"{found.answered_per_s:.0f}/s"
    return [
        _row(found),
        told(f"worker CPU per sample at {rate}", f"{found.worker_us:.0f} us", worker_us=found.worker_us),
    ]


def _run(rig: Rig) -> Measured:
    bootstrap = rig.kafka().bootstrap
    rig.say(f"latency: {FLEET} other nodes, {WARM_UP_S + MEASURED_S:.0f} s")
    with (
        loop.worker(rig, bootstrap) as worker,
        loop.fleet(rig, bootstrap, FLEET) as fleet,
        node(rig, crunch=False, alone=True) as one,
        loop.agent(rig, bootstrap, one, interval_s=INTERVAL_S) as agent,
    ):
        one.play(wobble(1, WARM_UP_S + MEASURED_S))
        wait(WARM_UP_S, worker, fleet, agent)
        since_ms, cpu_s, answered = SystemClock().wall_ms(), worker.cpu_s(), log.answered(bootstrap)
        wait(MEASURED_S, worker, fleet, agent)
        cpu_s, answered = worker.cpu_s() - cpu_s, log.answered(bootstrap) - answered
        until_ms = SystemClock().wall_ms()
        wait(1.0, worker, agent)
        return _measured(bootstrap, since_ms, until_ms, cpu_s, answered)


def _measured(bootstrap: str, since_ms: int, until_ms: int, cpu_s: float, answered: int) -> Measured:
    seen = [one for one in log.outcomes(bootstrap, NAME, since_ms) if one.observed_ms < until_ms]
    streamed = [one for one in seen if one.origin == "stream" and one.result in {"applied", "unchanged"}]
    found = log.commands(bootstrap, since_ms=since_ms)
    answers = [one.decided_ms - one.observed_ms for one in found if one.answer != "keep"]  # those name no time
    if not streamed or not answers:
        raise CannotRunError(f"the stream decided none of {len(seen)} outcomes")
    return Measured(
        ages_ms=[one.age_ms for one in streamed],
        results=Counter(one.result for one in streamed),
        decided_ms=answers,
        guarded=sum(one.origin == "guard" for one in seen),
        worker_us=cpu_s / max(1, answered) * 1e6,
        answered_per_s=answered / (until_ms - since_ms) * 1000,
    )


def _row(found: Measured) -> Row:
    n = len(found.ages_ms)
    p50, p99 = percentile(found.ages_ms, 50), percentile(found.ages_ms, 99)
    all_p50, all_p99 = percentile(found.decided_ms, 50), percentile(found.decided_ms, 99)
    assert p50 is not None
    assert p99 is not None
    applied, unchanged = found.results["applied"], found.results["unchanged"]
    return judged(
        f"sample -> limit in the kernel, {FLEET} nodes beside it",
        f"p50 <= {P50_MS} ms, p99 <= {P99_MS} ms, n >= {N_MIN}",
        f"p50 {p50:.0f} ms, p99 {p99:.0f} ms; {applied} applied, {unchanged} unchanged; the guard decided "
        f"{found.guarded}; sample -> changed limit of all nodes: p50 {all_p50} ms, p99 {all_p99} ms "
        f"(n {len(found.decided_ms)})",
        met=p50 <= P50_MS and p99 <= P99_MS and n >= N_MIN,
        n=n,
        p50_ms=p50,
        p99_ms=p99,
        applied=applied,
        unchanged=unchanged,
        decided_p50_ms=all_p50,
        decided_p99_ms=all_p99,
        guard=found.guarded,
    )
