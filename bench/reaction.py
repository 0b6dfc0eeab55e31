"""Figures: the service's load steps up -> first lower limit, and until it has settled; by stream and by guard."""

import itertools
import signal
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import log, loop
from bench.node import NAME, Node, node
from bench.plan import SETTLED_S, Plan, stairs
from bench.process import Slacktide
from bench.rig import CannotRunError, Rig, wait
from bench.rows import Row, judged, seconds
from slacktide.agents.clock import SystemClock
from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.decisions.suppress.cpu_suppress_quota import QUOTA_US_MIN

TIMES = 7
"""Three steps each."""
N_MIN = 20
MOST = 0.95
NEAR = 0.10
WARM_UP_S = 6.0
SPOOL_S = 40.0
"""Until the outcomes of an outage must have reached the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What one decider promises, in seconds."""

    title: str
    median: float | None
    first: float
    settled: float


STREAM = Target(title="stream", median=1.0, first=1.3, settled=2.3)
GUARD = Target(title="guard, broker gone", median=None, first=2.0, settled=3.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A plan with the wall time of its start, for outcomes are dated so."""

    plan: Plan
    start_ms: int

    def at_ms(self, offset_s: float) -> int:
        """The wall time of an offset."""
        return self.start_ms + round(offset_s * 1000)


def measure(rig: Rig) -> list[Row]:
    """The same kind of load twice: with the broker, and without it from its first step on."""
    broker = rig.kafka()
    bootstrap = broker.bootstrap
    with (
        loop.worker(rig, bootstrap) as worker,
        node(rig, crunch=True, alone=True) as one,
        loop.agent(rig, bootstrap, one) as agent,
    ):
        wait(WARM_UP_S, worker, agent)
        streamed = _play(rig, one, stairs(1, TIMES), "the stream decides")
        wait(_left_s(streamed), worker, agent)
        guarded = _play(rig, one, stairs(2, TIMES), "the broker goes at the first step")
        wait(_left_s(guarded) - guarded.plan.seconds + guarded.plan.steps_s[0], worker, agent)
        broker.stop(signal.SIGKILL)
        wait(_left_s(guarded), agent)
        broker.start()
        outcomes = _after_outage(rig, bootstrap, guarded, agent)
        return [
            *_rows(STREAM, streamed, outcomes, one.mode, "stream"),
            *_rows(GUARD, guarded, outcomes, one.mode, "guard"),
        ]


def _play(rig: Rig, one: Node, plan: Plan, what: str) -> Played:
    rig.say(f"reaction: {what}; {len(plan.steps_s)} steps in {plan.seconds:.0f} s")
    return play(one, plan)


def play(one: Node, plan: Plan) -> Played:
    """Ask the service for a load, and know when."""
    ahead_ms = round((one.play(plan) - time.monotonic()) * 1000)
    return Played(plan=plan, start_ms=SystemClock().wall_ms() + ahead_ms)


def _left_s(played: Played) -> float:
    return (played.at_ms(played.plan.seconds) - SystemClock().wall_ms()) / 1000


def _after_outage(rig: Rig, bootstrap: str, last: Played, agent: Slacktide) -> list[NodeOutcome]:
    """All outcomes, once those of the outage have come out of the spool: the last step's is among them."""
    rig.say("reaction: the broker is back; waiting for the spool")
    until_s = time.monotonic() + SPOOL_S
    while True:
        outcomes = log.outcomes(bootstrap, NAME)
        if any(one.observed_ms >= last.at_ms(last.plan.seconds) for one in outcomes):
            return outcomes
        if time.monotonic() > until_s:
            raise CannotRunError(f"no outcomes of the outage within {SPOOL_S:g} s\n{agent.last_words()}")
        wait(1.0, agent)


def first_cuts_s(played: Played, outcomes: Sequence[NodeOutcome]) -> list[float | None]:
    """For each step: until the first lower limit that a sample taken after it led to. None: not before the next.

    Left out are steps that found the limit at its floor already: what else ran on the machine had brought it there.
    """
    offsets = [*played.plan.steps_s, played.plan.seconds]
    found: list[float | None] = []
    for offset_s, next_s in itertools.pairwise(offsets):
        step_ms, until_ms = played.at_ms(offset_s), played.at_ms(next_s)
        if held_us(outcomes, step_ms) <= QUOTA_US_MIN:
            continue
        cuts = [one.acted_ms for one in outcomes if one.observed_ms >= step_ms and _lowers(one)]
        first_ms = min(cuts, default=until_ms)
        found.append((first_ms - step_ms) / 1000 if first_ms < until_ms else None)
    return found


def settled_s(played: Played, outcomes: Sequence[NodeOutcome]) -> list[float | None]:
    """For each plateau: until the limit first came within a tenth of its final value, the median of its last 2 s.

    Left out are plateaus that found it there.
    """
    limits = [(one.acted_ms, _quota_us(one)) for one in outcomes if one.result in {"applied", "unchanged"}]
    found: list[float | None] = []
    for begin_s, end_s in played.plan.plateaus_s:
        begin_ms, end_ms = played.at_ms(begin_s), played.at_ms(end_s)
        final = [quota for at_ms, quota in limits if end_ms - SETTLED_S * 1000 <= at_ms <= end_ms]
        final_us = statistics.median(final) if final else 0.0
        if not _near(held_us(outcomes, begin_ms), final_us):
            near = [at_ms for at_ms, quota in limits if begin_ms <= at_ms <= end_ms and _near(quota, final_us)]
            found.append((min(near) - begin_ms) / 1000 if near else None)
    return found


def held_us(outcomes: Sequence[NodeOutcome], at_ms: int) -> float:
    """The limit in force at an instant."""
    before = [one for one in outcomes if one.acted_ms <= at_ms and one.result in {"applied", "unchanged"}]
    return _quota_us(max(before, key=lambda one: one.acted_ms)) if before else float("inf")


def _near(quota_us: float, final_us: float) -> bool:
    return abs(quota_us - final_us) <= NEAR * final_us


def _lowers(outcome: NodeOutcome) -> bool:
    return outcome.result == "applied" and _quota_us(outcome, "before") > _quota_us(outcome)


def _quota_us(outcome: NodeOutcome, which: str = "after") -> float:
    limits = getattr(outcome, which)
    quota_us = limits and limits.be_cfs_quota_us
    return float("inf") if quota_us is None else float(quota_us)


def _rows(target: Target, played: Played, outcomes: list[NodeOutcome], mode: str, origin: str) -> list[Row]:
    firsts, settled = first_cuts_s(played, outcomes), settled_s(played, outcomes)
    during = [
        one
        for one in outcomes
        if played.at_ms(played.plan.steps_s[0]) <= one.observed_ms < played.at_ms(played.plan.seconds)
    ]
    decided = sum(one.origin == origin for one in during)
    middle, share = median(firsts), within(firsts, target.first)
    near, near_share = median(settled), within(settled, target.settled)
    wanted = f"median <= {target.median} s, " if target.median else ""
    quick = target.median is None or (middle is not None and middle <= target.median)
    met = share >= MOST and quick and len(firsts) >= N_MIN
    return [
        judged(
            f"LS step -> first lower limit ({target.title})",
            f"{wanted}{MOST:.0%} <= {target.first} s, n >= {N_MIN}",
            f"median {seconds(middle)}, {share:.0%} within, longest {seconds(longest(firsts))}; "
            f"{origin} decided {decided} of {len(during)} outcomes; {mode} node",
            met=met,
            n=f"{len(firsts)} of {len(played.plan.steps_s)}",
            all_s=firsts,
            mode=mode,
            decided=decided,
            outcomes=len(during),
        ),
        judged(
            f"LS step -> limit within 10% of its final value ({target.title})",
            f"{MOST:.0%} <= {target.settled} s",
            f"median {seconds(near)}, {near_share:.0%} within, longest {seconds(longest(settled))}",
            met=near_share >= MOST and bool(settled),
            n=f"{len(settled)} of {len(played.plan.plateaus_s)}",
            all_s=settled,
        ),
    ]


def median(values: list[float | None]) -> float | None:
    """Of all: one that never came counts as longest."""
    ordered = sorted(float("inf") if value is None else value for value in values)
    middle = ordered[(len(ordered) - 1) // 2] if ordered else float("inf")
    return None if middle == float("inf") else middle


def longest(values: list[float | None]) -> float | None:
    """None where one never came."""
    return None if None in values else max((value for value in values if value is not None), default=None)


def within(values: list[float | None], limit_s: float) -> float:
    """Which part of them came in time."""
    return sum(value is not None and value <= limit_s for value in values) / max(1, len(values))
