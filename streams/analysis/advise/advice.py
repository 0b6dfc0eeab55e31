"""Gain and risk of each policy of a grid with confidence intervals, and the knee of the curve."""

from collections.abc import Sequence
from itertools import product
from math import hypot

import msgspec
import numpy as np
from numpy.typing import NDArray

from slacktide.schemas.policy import Policy, versioned
from slacktide.streams.analysis.advise.demand import share_over, share_used
from slacktide.streams.analysis.advise.trials import BLOCK_MS, Tally, Tried

HOUR_MS = 3_600_000
CORE_HOUR = HOUR_MS * 1_000
"""Millicore-milliseconds."""
HOURS_MIN = 6
"""The bootstrap uses hourly blocks if the span has this many."""
DRAWS = 400
INTERVAL = (0.025, 0.975)
Z = 1.96
"""The interval in standard deviations."""
MODEL_OFF = Z * 0.028
"""The standard deviation of use under a limit is 2.8% of it between samples, measured (docs/advise.md)."""
KNEE_GAIN_MIN = 0.05
"""Below this relative difference in best-effort core-hours a grid has no knee."""
FIGURES = tuple(Tally.__struct_fields__)
SUPPRESS_PCT = (45, 50, 55, 60, 65, 70, 75, 80, 85)
"""The default grid of ``cpuSuppressThresholdPercent``."""
POLICIES_MAX = 64
Floats = NDArray[np.float64]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate with its interval."""

    low: float
    estimate: float
    high: float


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """The label of a policy of the grid."""

    policy_version: str
    """Empty: as recorded."""
    cpu_suppress_threshold_pct: int | None = None
    mem_evict_threshold_pct: int | None = None


class Choice(Tag, frozen=True, kw_only=True):
    """A policy of the grid, or the recorded ones."""

    be_core_h: Figure
    over_line_pct: Figure
    """Share of node time with use above the line."""
    evictions: Figure
    knee: bool = False
    knee_draws_pct: float = 0.0
    """The share of resamples in which this policy is the knee."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the trials."""

    since_ms: int
    until_ms: int
    nodes: int
    node_hours: float
    line_pct: float
    block_ms: int
    samples: int
    undecided: int
    unproven: int
    recorded: Choice
    choices: list[Choice]
    """The choices in the order of the grid."""


def advise(tried: Tried, tags: Sequence[Tag], line_pct: float) -> Advice:
    """Summarize trials of at least one sample, with intervals. The bootstrap is deterministic.

    ``tags``: of the grid's policies, in order. ``line_pct``: the line used in the trials.
    """
    nodes = sorted(tried.trials[0])
    since_ms, until_ms = tried.since_ms or 0, tried.until_ms or 0
    size = HOUR_MS // BLOCK_MS if until_ms - since_ms >= HOURS_MIN * HOUR_MS else 1
    whole, used = _arrays(tried, nodes, size)
    dice = np.random.default_rng(0)
    # Nodes and blocks are resampled separately, since nodes share busy hours (pigeonhole bootstrap, Owen 2007).
    drawn = _weights(len(nodes), dice), _weights(whole.shape[2], dice)
    low, middle, high = (_totals(whole, part, *drawn) for part in (np.zeros_like(used), used, np.ones_like(used)))
    knees = [_knee(middle[1:, 0, draw], middle[1:, 1, draw]) for draw in range(DRAWS + 1)]
    choices = []
    for at, tag in enumerate([Tag(policy_version=""), *tags]):
        figures = [
            Figure(
                low=float(np.quantile(low[at, one], INTERVAL[0])),
                estimate=float(middle[at, one, 0]),
                high=float(np.quantile(high[at, one], INTERVAL[1])),
            )
            for one in range(3)
        ]
        choices.append(
            Choice(
                **msgspec.structs.asdict(tag),
                be_core_h=_wider(figures[0]),
                over_line_pct=figures[1],
                evictions=_counted(figures[2].estimate, figures[2], min(whole.shape[1:3])),
                knee=at > 0 and knees[0] == at - 1,
                knee_draws_pct=100 * sum(one == at - 1 for one in knees) / len(knees) if at else 0.0,
            )
        )
    return Advice(
        since_ms=since_ms,
        until_ms=until_ms,
        nodes=len(nodes),
        node_hours=float(whole[0, :, :, FIGURES.index("covered_ms")].sum()) / HOUR_MS,
        line_pct=line_pct,
        block_ms=size * BLOCK_MS,
        samples=tried.samples,
        undecided=tried.undecided,
        unproven=tried.unproven,
        recorded=choices[0],
        choices=choices[1:],
    )


def _arrays(tried: Tried, nodes: Sequence[str], size: int) -> tuple[Floats, Floats]:
    """Return policies by nodes by blocks by figures, and the range of core-hours and risk per node."""
    times = sorted({at // size for node in tried.trials[0].values() for at in node.blocks})
    place = {at: index for index, at in enumerate(times)}
    whole = np.zeros((len(tried.trials), len(nodes), len(times), len(FIGURES)))
    used = np.ones((2, len(tried.trials), len(nodes)))
    for policy, trial in enumerate(tried.trials):
        for row, node in ((row, trial[name]) for row, name in enumerate(nodes) if name in trial):
            if demand := tried.demand.get(nodes[row]):
                used[:, policy, row] = share_used(demand, node.raises), share_over(demand, node.crossings)
            for at, tally in node.blocks.items():
                if at // size in place:
                    whole[policy, row, place[at // size]] += msgspec.structs.astuple(tally)
    return whole, used


def _weights(count: int, dice: np.random.Generator) -> Floats:
    """Return how often each resample takes each item; the first one is the original."""
    drawn = [np.bincount(dice.integers(count, size=count), minlength=count) for _ in range(DRAWS)]
    found: Floats = np.array([np.ones(count), *drawn])
    return found


def _totals(whole: Floats, part: Floats, of_nodes: Floats, of_blocks: Floats) -> Floats:
    """Compute policies by (core-hours, percent over the line, evictions) by resamples.

    ``whole``: policies by nodes by blocks by figures. ``part``: range of core-hours and risk, each policies by nodes.
    ``of_nodes``, ``of_blocks``: weights, resamples by nodes or blocks.
    """
    covered, low, high, over_low, over_high, evictions = (whole[..., at] for at in range(len(FIGURES)))
    gain, risk = part[..., None]
    hours, over, gone, time = (
        np.einsum("pnd,dn->pd", figure @ of_blocks.T, of_nodes)
        for figure in (low + gain * (high - low), over_low + risk * (over_high - over_low), evictions, covered)
    )
    time = np.maximum(time, 1.0)
    scale = time[:, :1] / time  # a resample may have another number of samples
    return np.stack([hours * scale / CORE_HOUR, 100 * over / time, gone * scale], axis=1)


def _wider(drawn: Figure) -> Figure:
    """Widen the interval by the model's error, if there are too few nodes and blocks to show it."""
    off = MODEL_OFF * drawn.estimate
    return Figure(
        low=max(0.0, drawn.estimate - hypot(off, drawn.estimate - drawn.low)),
        estimate=drawn.estimate,
        high=drawn.estimate + hypot(off, drawn.high - drawn.estimate),
    )


def _counted(estimate: float, drawn: Figure, parts: int) -> Figure:
    """Return the interval for a new count: the bootstrap's variance twice, and a Poisson interval.

    A bootstrap of few parts understates the spread by the root of (parts - 1) / parts. The Poisson interval is in
    Wilson and Hilferty's form.
    """
    wider = (2 * parts / max(1, parts - 1)) ** 0.5
    more = estimate + 1
    most = more * (1 - 1 / (9 * more) + Z / (3 * more**0.5)) ** 3
    least = max(0.0, estimate * (1 - 1 / (9 * estimate) - Z / (3 * estimate**0.5)) ** 3) if estimate else 0.0
    return Figure(
        low=max(0.0, estimate - hypot(estimate - least, wider * max(0.0, estimate - drawn.low))),
        estimate=estimate,
        high=estimate + hypot(most - estimate, wider * max(0.0, drawn.high - estimate)),
    )


def _knee(gain: Floats, risk: Floats) -> int | None:
    """Return the policy farthest above the line from the safest to the most generous one; None: no knee.

    Kneedle (Satopää et al., 2011): both axes are scaled to 0..1, and gain minus risk is maximal.
    """
    if gain.max() - gain.min() < KNEE_GAIN_MIN * gain.max() or risk.max() <= risk.min():
        return None
    distance = (gain - gain.min()) / (gain.max() - gain.min()) - (risk - risk.min()) / (risk.max() - risk.min())
    best = int(np.argmax(distance))
    return best if distance[best] > 0 else None


def grid(base: Policy, suppress_pct: Sequence[int], mem_evict_pct: Sequence[int]) -> list[tuple[Tag, Policy]]:
    """Build one policy per pair of thresholds, safest first. Node strategies are unchanged.

    Suppression is enabled in each, by CPU use, also if the policy in force disables it or uses pressure. Without
    values, that of the policy is used. The lower threshold of memory keeps its distance.
    """
    threshold = base.resource_threshold
    memory: Sequence[int | None] = sorted(set(mem_evict_pct)) or [threshold.mem_evict_threshold_pct]
    found = []
    for suppress, evict in product(sorted(set(suppress_pct)) or [threshold.cpu_suppress_threshold_pct], memory):
        lower = threshold.mem_evict_lower_pct
        if lower is not None and evict is not None and threshold.mem_evict_threshold_pct is not None:
            lower = max(0, lower + evict - threshold.mem_evict_threshold_pct)
        tried = msgspec.structs.replace(
            threshold,
            enable=True,
            cpu_suppress_signal="usage",
            cpu_suppress_threshold_pct=suppress,
            mem_evict_threshold_pct=evict,
            mem_evict_lower_pct=lower,
        )
        policy = versioned(msgspec.structs.replace(base, resource_threshold=tried))
        tag = Tag(policy_version=policy.version, cpu_suppress_threshold_pct=suppress, mem_evict_threshold_pct=evict)
        found.append((tag, policy))
    return found
