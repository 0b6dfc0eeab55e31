"""The suppress rule over many samples at once: the arithmetic of ``cpu_suppress.decide``, in the same order.

NumPy's float64 operations equal Python's in the last digit. Where arrays cannot repeat the rule, the bound is
``SCALAR``.
"""

from typing import Final, NamedTuple

import numpy as np

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import resource_threshold_on
from slacktide.schemas.policy.strategies import SuppressSignal
from slacktide.schemas.sample import Limits
from slacktide.streams.columns.looks import OPEN, UNPROVEN
from slacktide.streams.columns.rings import Bools, Ints
from slacktide.streams.decisions.evict.node_evict import evicts_by_memory_alone
from slacktide.streams.decisions.resources.node_load import node_reserved
from slacktide.streams.decisions.suppress.cpu_suppress import RAISE_SPACING_MS
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US, QUOTA_US_MIN
from slacktide.streams.decisions.suppress.learned_cap import explores, learned_cap

NONE: Final = -1
"""No quota in force, no minimum in the policy, or no raise since the agent's start."""
NO_LINE: Final = 1 << 60
"""In percent of memory, above any use."""
KEEP, SCALAR, TARGET, FLOORED, STEPPED = range(5)
"""The outcome: keep, the scalar rule decides, or the step that determined the new quota."""

_FIGURES = (
    "capacity_milli",
    "threshold_pct",
    "ceiling_milli",
    "nonbe_pods_milli",
    "nonbe_hosts_milli",
    "system_milli",
    "formula_milli",
)
VARYING: Final = (3, 5, 6, 8, 9, 10)
"""Columns of ``Screened.terms``: of pods and system, formula, allowed, target, and the quota in force.

The others are the same for all samples with one result of ``fit``.
"""
_MINIMUM, _TARGET, _CURRENT, _STEP = "minimum_milli", ("allowed_milli", "target_us"), "current_us", "step_us_max"


_MILLI_MAX: Final = 1 << 42
"""Four billion CPUs. Below, no product exceeds 64 bits, and each integer equals its float64."""
_SIGNALS: Final[tuple[SuppressSignal, ...]] = ("usage", "pressure", "both")
_BY_USAGE, _BY_PRESSURE = 0, 1
NO_CAP: Final = 1 << 60
"""In microseconds per period, above any quota."""
_UNCAPPED: Final = (NO_CAP, NO_CAP, 0)
UNFIT: Final = (0, 0, 0, NONE, 1, NO_LINE, _BY_USAGE, *_UNCAPPED)
"""Replaces the result of ``fit`` where the scalar rule decides: the capacity is 0."""
OTHER_LIMITS: Final = -2
"""Replaces a quota: limits that the arrays do not compare."""


def fit(facts: NodeFacts, policy: Policy, *, pods: int) -> tuple[int, ...]:
    """Return what the rule reads of a node and its policy; ``UNFIT``: the scalar rule decides.

    Capacity and reservation in millicores, threshold and minimum in percent, memory capacity in bytes, the memory
    threshold of the eviction rules in percent, the signal, and the fields of ``LearnedCap``.
    """
    threshold = resource_threshold_on(policy, facts)
    capacity, mem_capacity = facts.capacity.cpu_milli, facts.capacity.mem_bytes
    if not (threshold.enable and threshold.cpu_suppress_policy == "cfsQuota" and pods and capacity):
        return UNFIT
    reserved, min_pct = node_reserved(facts).cpu_milli or 0, threshold.cpu_suppress_min_pct
    if not evicts_by_memory_alone(threshold) or max(capacity, reserved) > _MILLI_MAX:
        return UNFIT
    line_pct = threshold.mem_evict_threshold_pct
    return (
        capacity,
        reserved,
        threshold.cpu_suppress_threshold_pct,
        NONE if min_pct is None else min_pct,
        mem_capacity or 1,
        NO_LINE if line_pct is None or not mem_capacity else line_pct,
        _SIGNALS.index(threshold.cpu_suppress_signal),
        *(learned_cap(policy, facts, threshold) or _UNCAPPED),
    )


def quota_of(limits: Limits | None) -> int:
    """Return the quota in force per 100 ms; NONE: there is none; OTHER_LIMITS."""
    if limits is None or limits.be_cfs_period_us != PERIOD_US or limits.be_cpuset is not None:
        return OTHER_LIMITS
    if limits.be_cfs_quota_us is None:
        return NONE
    return limits.be_cfs_quota_us if limits.be_cfs_quota_us >= 0 else OTHER_LIMITS


class Samples(NamedTuple):
    """The rule's inputs of each sample, int64 [n]."""

    quota_us: Ints
    node_milli: Ints
    node_bytes: Ints
    be_milli: Ints
    """Use of all best-effort pods."""
    all_milli: Ints
    """Use of all pods."""
    since_raise_ms: Ints
    gates: Ints
    """See ``looks.gates``."""
    observed_ms: Ints


class Screened(NamedTuple):
    """The rule's result for each sample."""

    bound: Ints
    """KEEP, SCALAR, or the step."""
    minimum: Bools
    limited: Bools
    quota_us: Ints
    """The new quota."""
    terms: Ints
    """int64 [n, 12], see ``names``; columns that a case does not use are undefined."""

    def cases(self) -> list[int]:
        """Number the kinds of answers, see ``case_of``; all that keep are one kind."""
        numbered = self.bound * 4 + self.minimum * 2 + self.limited
        found: list[int] = np.where(self.bound == KEEP, KEEP, numbered).tolist()
        return found


def screen(fits: Ints, samples: Samples) -> Screened:
    """Decide many samples. ``fits``: int64 [n, 10], the result of ``fit`` for each."""
    capacity, reserved, threshold, min_pct, mem_capacity, line, signal, cap, explored, slot = fits.T
    cap = np.where(explores(slot, samples.observed_ms), explored, cap)
    quota = samples.quota_us
    be_cores, others_cores = samples.be_milli / 1000, (samples.all_milli - samples.be_milli) / 1000
    system_cores = np.maximum(samples.node_milli / 1000 - (be_cores + others_cores), reserved / 1000)
    ceiling = capacity * threshold // 100
    pods_milli = (others_cores * 1000).astype(np.int64)
    system_milli = (system_cores * 1000).astype(np.int64)
    formula = ceiling - pods_milli - system_milli
    minimum_milli = capacity * min_pct // 100
    minimum = (min_pct != NONE) & (formula < minimum_milli)
    allowed = np.where(minimum, minimum_milli, formula)
    node_us = -(-capacity // 1000) * PERIOD_US
    target = np.maximum(allowed * PERIOD_US // 1000, QUOTA_US_MIN)
    limited, floored = quota != NONE, target == QUOTA_US_MIN
    move = target - quota
    near = limited & (np.abs(move) < node_us * 0.01) & ~floored
    step = (node_us * 0.1).astype(np.int64)
    stepped = limited & ~near & (move > node_us * 0.1)
    wanted = np.where(stepped, quota + step, target)
    since = samples.since_raise_ms
    spaced = limited & (wanted > quota) & (since != NONE) & (since < RAISE_SPACING_MS)
    keep = near | spaced | (limited & (wanted == quota))
    bound = np.where(keep, KEEP, np.where(stepped, STEPPED, np.where(floored, FLOORED, TARGET)))
    bound = np.where(signal == _BY_USAGE, bound, _by_signal(bound, signal, samples.gates, limited))
    bound = np.where(
        cap == NO_CAP, bound, _below_cap(bound, signal, samples.gates, np.where(keep, quota, wanted), quota, cap)
    )
    below = samples.node_bytes * 100 // np.maximum(mem_capacity, 1) < line
    exact = (samples.all_milli < _MILLI_MAX) & (samples.node_milli < _MILLI_MAX)
    proven = exact & (capacity > 0) & (quota != OTHER_LIMITS) & (below | (samples.node_bytes == 0))
    figures = (capacity, threshold, ceiling, pods_milli, np.zeros_like(capacity), system_milli, formula)
    terms = np.stack([*figures, minimum_milli, allowed, target, quota, step], 1)
    return Screened(np.where(proven, bound, SCALAR), minimum, limited, wanted, terms)


def _by_signal(bound: Ints, signal: Ints, gates: Ints, limited: Bools) -> Ints:
    """Return what is kept where the policy uses pressure; the scalar rule decides all else.

    An open gate lifts the limit, or leaves it to usage; without looks, usage decides.
    """
    kept = np.where((signal == _BY_PRESSURE) & (gates == OPEN), ~limited, bound == KEEP)
    return np.where(kept & (gates != UNPROVEN), KEEP, SCALAR)


def _below_cap(bound: Ints, signal: Ints, gates: Ints, found: Ints, quota: Ints, cap: Ints) -> Ints:
    """Return what is kept, or set, below a learned cap; the scalar rule decides all else.

    ``found``: the quota by usage. An open gate alone leaves all that the cap allows.
    """
    by_usage = np.where(found <= cap, bound, np.where((quota == cap) & (bound != SCALAR), KEEP, SCALAR))
    opened = (signal == _BY_PRESSURE) & (gates == OPEN)
    return np.where(opened, np.where(quota == cap, KEEP, SCALAR), by_usage)


def case_of(case: int) -> tuple[int, bool, bool]:
    """Return the bound, whether the minimum holds, and whether a quota was in force."""
    return bound_of(case), bool(case & 2), bool(case & 1)


def bound_of(case: int) -> int:
    """Return the bound of a case."""
    return case >> 2


def names(bound: int, *, minimum: bool, limited: bool) -> dict[str, int]:
    """Return the terms of a case in order, each with its column in ``Screened.terms``."""
    found = {name: column for column, name in enumerate(_FIGURES)}
    if minimum:
        found[_MINIMUM] = 7
    found |= dict(zip(_TARGET, (8, 9), strict=True))
    if limited:
        found[_CURRENT] = 10
    if bound == STEPPED:
        found[_STEP] = 11
    return found


BOUNDS: Final = {TARGET: "target", FLOORED: "floored", STEPPED: "stepped"}
MINIMUM: Final = "minimum"
