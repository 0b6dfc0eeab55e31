"""By how much a real kernel differs from a fluid one, fitted to recorded runs of real processes in real groups."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from slacktide.schemas.sample import Limits, NodeSample
from testbed.plants import STEP_S, Behaviour

FREE, HELD = 0.85, 1.15
"""Pods whose demand is below this part of their limit are free; above this one they are held back."""
WANT_MILLI_MIN = 10

FITTED = Behaviour(
    met_part=0.9979,
    met_more_milli=1.239,
    met_sd=0.0197,
    used_part=0.9999,
    used_sd=0.0281,
    late_ms=38.1,
    end_ms=447,
    mem_part=1.031,
    mem_more_bytes=2.258e6,
    mem_more_sd_bytes=1.43e6,
    mem_sd=0.0055,
)
"""What ``fit`` finds in the recorded runs; a test compares."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    run: int
    policy: tuple[int, int]
    """Thresholds of suppression and of eviction, percent."""
    sample: NodeSample
    wants: dict[str, tuple[int, int]]
    """Millicores and bytes that each pod wanted since the reading before."""
    ended_ms: dict[str, float] = {}
    """Of victims that ended since: from the signal until their group was empty, less their grace."""


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A value, its standard error between runs, and from how many observations."""

    value: float
    error: float
    count: int


def fit(steps: Sequence[Step]) -> dict[str, Fit]:
    """Each value of the behaviour by its name. Errors by the jackknife over runs."""
    runs = sorted({step.run for step in steps})
    found = {}
    for name, (observed, figure) in VALUES.items():
        of_run = {run: list(observed([step for step in steps if step.run == run])) for run in runs}
        left_out = [figure(np.array([one for other in runs if other != run for one in of_run[other]])) for run in runs]
        every = np.array([one for run in runs for one in of_run[run]])
        error = float(np.sqrt((len(runs) - 1) * np.var(left_out)))
        found[name] = Fit(value=float(figure(every)), error=error, count=len(every))
    return found


def limit_milli(limits: Limits | None) -> float | None:
    if limits is None or limits.be_cfs_quota_us is None:
        return None
    return limits.be_cfs_quota_us * 1_000 / limits.be_cfs_period_us


def _successive(steps: Sequence[Step]) -> Iterator[tuple[Step, Step]]:
    for before, after in pairwise(steps):
        if before.policy == after.policy and after.sample.seq == before.sample.seq + 1:
            yield before, after


def _be_wanted(step: Step) -> int:
    """Of best-effort pods whose use is known."""
    return sum(
        step.wants[use.uid][0] for use in step.sample.pod_use if use.best_effort_group and use.cpu_milli is not None
    )


def _settled(before: Step, after: Step) -> bool:
    """Whether the same pods ran all the time: what a pod used while it came or went is in no sample."""
    known = {use.uid for use in after.sample.pod_use if use.cpu_milli is not None}
    return before.wants.keys() == after.wants.keys() == known and not after.sample.evict.dying


def _met(steps: Sequence[Step]) -> Iterator[tuple[float, float]]:
    """Demand and use of pods that nothing holds back."""
    for before, after in _successive(steps):
        limit = limit_milli(after.sample.limits)
        if not _settled(before, after) or (limit is not None and _be_wanted(after) > FREE * limit):
            continue
        if (held := limit_milli(before.sample.limits)) is not None and _be_wanted(after) > FREE * held:
            continue
        for use in after.sample.pod_use:
            if (wanted := after.wants[use.uid][0]) >= WANT_MILLI_MIN:
                yield wanted, use.cpu_milli or 0


def _held(steps: Sequence[Step]) -> Iterator[tuple[float, float, float]]:
    """Old limit, new limit, and use, of pods that both hold back."""
    for before, after in _successive(steps):
        old, new = limit_milli(before.sample.limits), limit_milli(after.sample.limits)
        if old and new and _settled(before, after) and _be_wanted(after) > HELD * max(old, new):
            yield old, new, float(sum(use.cpu_milli or 0 for use in after.sample.pod_use if use.best_effort_group))


def _used(steps: Sequence[Step]) -> Iterator[float]:
    """Where a limit changed by little: else a part of the time was under the old one."""
    return (use / new for old, new, use in _held(steps) if abs(old - new) <= 0.02 * new)


def _late(steps: Sequence[Step]) -> Iterator[tuple[float, float]]:
    """Change of the limit, and what use went beyond the new one."""
    return ((old - new, use - new) for old, new, use in _held(steps) if abs(old - new) > 0.02 * new)


def _late_ms(pairs: np.ndarray) -> float:
    """Least squares through zero: the part of a step under the old limit."""
    change, beyond = pairs[:, 0], pairs[:, 1]
    return max(0.0, float(change @ beyond / (change @ change))) * STEP_S * 1_000


def _ended(steps: Sequence[Step]) -> Iterator[float]:
    return (ms for step in steps for ms in step.ended_ms.values())


def _working_sets(steps: Sequence[Step]) -> Iterator[tuple[float, float]]:
    """What a pod holds, and its working set. The first sample is as the others: a start takes less than a step."""
    for step in steps:
        for use in step.sample.pod_use:
            if (wanted := step.wants[use.uid][1]) and use.mem_bytes is not None:
                yield wanted, use.mem_bytes


def _pods(steps: Sequence[Step]) -> Iterator[tuple[list[int], list[int]]]:
    """Of each pod, what it held and its working sets, in order."""
    found: dict[tuple[tuple[int, int], str], tuple[list[int], list[int]]] = {}
    for step in steps:
        for use in step.sample.pod_use:
            held, sets = found.setdefault((step.policy, use.uid), ([], []))
            held.append(step.wants[use.uid][1])
            sets.append(use.mem_bytes or 0)
    yield from found.values()


def _beside(steps: Sequence[Step]) -> Iterator[float]:
    """What pods have beside what they hold: each pod's mean."""
    return (float(np.mean(np.array(sets) - np.array(held))) for held, sets in _pods(steps))


def _wavering(steps: Sequence[Step]) -> Iterator[float]:
    """By how much of what it holds a pod's working set changes from sample to sample, if that stays the same."""
    for held, sets in _pods(steps):
        for (before, one), (after, two) in pairwise(zip(held, sets, strict=True)):
            if before == after:
                yield (two - one) / 2**0.5 / after


def _line(pairs: np.ndarray) -> tuple[float, float, float]:
    """Least squares: slope, what is there at zero, and the standard deviation by the demand."""
    demand, came = pairs[:, 0], pairs[:, 1]
    slope, more = np.polyfit(demand, came, 1)
    return float(slope), float(more), float(np.std((came - slope * demand - more) / demand))


VALUES: dict[str, tuple[Callable[[Sequence[Step]], Iterator], Callable[[np.ndarray], float]]] = {
    "met_part": (_met, lambda pairs: _line(pairs)[0]),
    "met_more_milli": (_met, lambda pairs: _line(pairs)[1]),
    "met_sd": (_met, lambda pairs: _line(pairs)[2]),
    "used_part": (_used, np.mean),
    "used_sd": (_used, np.std),
    "late_ms": (_late, _late_ms),
    "end_ms": (_ended, np.mean),
    "mem_part": (_working_sets, lambda pairs: _line(pairs)[0]),
    "mem_more_bytes": (_working_sets, lambda pairs: _line(pairs)[1]),
    "mem_more_sd_bytes": (_beside, np.std),
    "mem_sd": (_wavering, np.std),
}
"""By name: what is observed, and what is made of it."""
