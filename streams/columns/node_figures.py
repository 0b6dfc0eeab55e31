"""Computes what is published of a node: NodeMetric, and the batch, mid and free allocatable.

Latest state is published again after an interval that the operator sets, 5 s by default. It is published sooner, at
most once a second, if a figure moves by more than 1% of the node, or if its pods, facts or policy change.
"""

from collections.abc import Sequence
from math import isnan
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np

from slacktide.schemas.allocatable import OFFERED, NodeAllocatable
from slacktide.schemas.bounds import INT64_MAX
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import Aggregate, NodeMetric, PodMetric, Spread, Use
from slacktide.schemas.policy import Colocation, Policy
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.third_party import ANNOTATION, ThirdParty, third_party
from slacktide.streams.columns.block import Named
from slacktide.streams.columns.rings import Bools, Floats, Ints, Spreads
from slacktide.streams.columns.series import NodeWindow, Published
from slacktide.streams.columns.windows import Averages, Windows, averages_of
from slacktide.streams.decisions.known_pods import PodName
from slacktide.streams.decisions.prediction.mid_forecast import NO_FORECAST, MidForecast
from slacktide.streams.decisions.resources.batch_resource import batch_resource, free_resource
from slacktide.streams.decisions.resources.mid_resource import mid_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad
from slacktide.streams.decisions.resources.publishing import published_floor, within_capacity

AMOUNT_MAX = 2**53
"""Readers in other languages represent integers exactly up to this."""
PUBLISH_MS_MIN = 900
"""Slightly below a second, because samples arrive with some jitter."""
REPUBLISH_MS = 5_000
SOONER_MS = 100
"""Tolerance for the jitter of samples."""
WORTH_PUBLISHING = 0.01
"""Share of the capacity by which node use, or system and pods together, must move to be published."""


Sampled: TypeAlias = NodeSample | Named
"""What identifies a sample."""


Offered: TypeAlias = dict[str, tuple[int, Terms]]
"""By field of ``NodeAllocatable``: the amount and its arithmetic."""


class Candidate(msgspec.Struct, frozen=True):
    """A node whose newest sample is in its window, and what that sample names."""

    window: NodeWindow
    sample: Sampled
    facts: NodeFacts
    """The capacity and reservation that figures are computed from."""
    pods: Sequence[Pod]
    inventory_revision: str = ""
    late: int = 0
    """Late samples of this boot."""
    forecast: MidForecast = NO_FORECAST


class Worth(NamedTuple):
    """Nodes that have something to publish, and their averages."""

    nodes: Sequence[Candidate]
    values: Sequence[Floats]
    """float64 [S, 2] of each node: its own, then its pods'; NaN: unknown."""
    counts: Sequence[Sequence[float]]
    """Of each node: milliseconds covered, and number of samples."""

    def averages(self, at: int) -> Averages:
        """Return the averages of one node."""
        return averages_of(self.nodes[at].window, self.values[at], self.counts[at])


def due(
    windows: Windows, candidates: Sequence[Candidate], policy: Policy, republish_ms: int = REPUBLISH_MS
) -> list[tuple[Candidate, NodeMetric]]:
    """Return the nodes whose figures are due, and their NodeMetric; each node occurs once."""
    found = worth_publishing(windows, candidates, policy, republish_ms)
    published = metrics_of(windows, found, range(len(found.nodes)), policy)
    publishing(windows, found, policy)
    return list(zip(found.nodes, published, strict=True))


def worth_publishing(windows: Windows, candidates: Sequence[Candidate], policy: Policy, republish_ms: int) -> Worth:
    """Find the nodes that have something to publish; each occurs once at most."""
    last = [(one, one.window.published) for one in candidates]
    asked = [
        one for one, had in last if had is None or not 0 <= one.sample.observed_ms - had.observed_ms < PUBLISH_MS_MIN
    ]
    if not asked:
        return Worth((), (), ())
    found = windows.averages([one.window for one in asked])
    ends = np.cumsum([len(one.window.all_rows) for one in asked])
    parts = np.split(found.values, ends[:-1])
    moved = _moved(windows, asked, parts)
    places = [
        at
        for at, one in enumerate(asked)
        if (moved[at] or _other(one, policy, republish_ms)) and not np.isnan(parts[at][:2]).any()
    ]
    return Worth([asked[at] for at in places], [parts[at] for at in places], [found.counts[at] for at in places])


def metrics_of(windows: Windows, found: Worth, places: Sequence[int], policy: Policy) -> list[NodeMetric]:
    """Build the NodeMetric of some of these nodes."""
    if not places:
        return []
    spreads = windows.spreads([found.nodes[at].window for at in places])
    return [
        metric_of(
            one,
            policy,
            found.averages(at),
            aggregates_of(spreads, number),
            names=one.window.names,
            window_ms=one.window.window_ms,
        )
        for number, at in enumerate(places)
        for one in (found.nodes[at],)
    ]


def publishing(windows: Windows, found: Worth, policy: Policy) -> None:
    """Record what is published. Call it after everything that may raise."""
    if found.nodes:
        windows.series.publish(
            np.concatenate([one.window.all_rows for one in found.nodes]), np.concatenate(found.values)
        )
    for one in found.nodes:
        one.window.published = Published(
            observed_ms=one.sample.observed_ms,
            revisions=revisions(one, policy),
            rows=one.window.all_rows,
        )


def holds(one: Candidate, republish_ms: int) -> bool:
    """Check whether the figures published last are recent enough."""
    published = one.window.published
    return published is not None and 0 <= one.sample.observed_ms - published.observed_ms < republish_ms - SOONER_MS


def _other(one: Candidate, policy: Policy, republish_ms: int) -> bool:
    """Check whether the interval has passed, or the inputs changed."""
    published = one.window.published
    if published is None or not holds(one, republish_ms):
        return True
    return published.rows is not one.window.all_rows or published.revisions != revisions(one, policy)


def revisions(one: Candidate, policy: Policy) -> tuple[str, str, str, str, str]:
    """Return the revisions of facts, inventory, pods, policy and forecast."""
    sample = one.sample
    return (
        sample.facts_revision,
        one.inventory_revision,
        sample.pods_revision,
        policy.version,
        one.forecast.revision,
    )


def _moved(windows: Windows, asked: Sequence[Candidate], parts: Sequence[Floats]) -> list[bool]:
    before = [
        now
        if one.window.published is None or one.window.published.rows is not one.window.all_rows
        else windows.series.published(one.window.all_rows)
        for one, now in zip(asked, parts, strict=True)
    ]
    begins = np.cumsum([0, *(len(part) for part in parts[:-1])])
    most = np.array([capacity_of(one.facts) for one in asked]) * WORTH_PUBLISHING
    found: list[bool] = beyond(np.concatenate(parts), np.concatenate(before), begins, most).tolist()
    return found


def beyond(now: Floats, before: Floats, begins: Ints, most: Floats) -> Bools:
    """Find the nodes whose use, or system and pods together, moved by more than their bands.

    ``now``, ``before``: float64 [N, 2]: averages, each node's own first, at ``begins``. ``most``: float64 [n, 2]: the
    bands.
    """
    found: Bools = np.zeros(len(begins), np.bool_)
    for figure in range(2):  # by column: NumPy is slow with rows of two
        # No average is negative: unknown ones count as 0.
        moves = np.abs(np.fmax(now[:, figure], 0.0) - np.fmax(before[:, figure], 0.0))
        of_node = moves[begins]
        of_rest = np.add.reduceat(moves, begins) - of_node
        found |= np.maximum(of_node, of_rest) > most[:, figure]
    return found


def capacity_of(facts: NodeFacts) -> tuple[int, int]:
    """Return CPU in millicores and memory in bytes; 0: unknown."""
    return facts.capacity.cpu_milli or 0, facts.capacity.mem_bytes or 0


def metric_of(
    one: Candidate,
    policy: Policy,
    averages: Averages,
    aggregates: list[Aggregate],
    *,
    names: Sequence[PodName],
    window_ms: int,
) -> NodeMetric:
    """Build a NodeMetric; ``names``: of the pods in ``averages``."""
    sample = one.sample
    return NodeMetric(
        node=sample.node,
        boot_id=sample.boot_id,
        seq=sample.seq,
        observed_ms=sample.observed_ms,
        window_ms=window_ms,
        covered_ms=averages.covered_ms,
        samples=averages.samples,
        policy_version=policy.version,
        facts_revision=sample.facts_revision,
        pods_revision=sample.pods_revision,
        node_use=averages.node,
        system_use=averages.system,
        pods=[
            PodMetric(**name._asdict(), use=Use(cpu_milli=round(cpu_milli), mem_bytes=round(mem_bytes)))
            for name, (cpu_milli, mem_bytes) in zip(names, averages.pods, strict=True)
            if cpu_milli == cpu_milli and mem_bytes == mem_bytes  # noqa: PLR0124 - NaN: the pod has no figure
        ],
        aggregates=aggregates,
        late=one.late,
        forecast_revision=one.forecast.revision,
        prod_reclaimable=one.forecast.prod_reclaimable,
        prod_peak=one.forecast.prod_peak,
    )


def aggregates_of(spreads: Sequence[Spreads], place: int) -> list[Aggregate]:
    """In order of length; omits a length in which a figure is unknown."""
    found = []
    for one in spreads:
        figures = one.figures[place]
        if any(isnan(figure[0]) for figure in figures):
            continue
        node_cpu, node_mem, system_cpu, system_mem = (
            Spread(avg=round(avg), p50=int(p50), p90=int(p90), p95=int(p95), p99=int(p99))
            for avg, p50, p90, p95, p99 in figures
        )
        found.append(
            Aggregate(
                window_ms=one.length_s * 1_000,
                covered_ms=one.covered_ms[place],
                node_cpu_milli=node_cpu,
                node_mem_bytes=node_mem,
                system_cpu_milli=system_cpu,
                system_mem_bytes=system_mem,
            )
        )
    return found


def allocatable_of(
    metric: NodeMetric,
    facts: NodeFacts,
    pods: Sequence[Pod],
    policy: Policy,
    inventory_revision: str = "",
    forecast: MidForecast = NO_FORECAST,
) -> NodeAllocatable:
    """Compute the batch, mid and free allocatable from averages: at most the capacity, at least what pods requested.

    Labels and annotations in ``facts`` select the strategy. ``inventory_revision`` "": the facts are from a sample.
    """
    colocation = colocation_on(policy, facts)
    load = NodeLoad(facts=facts, pods=pods, metrics=metric.pods, system=metric.system_use)
    offered, reason = (_offered(load, metric, colocation, forecast), "") if colocation.enable else (None, "disabled")
    if offered is None and not reason:
        reason = "the node's strategy offers more than any machine has"
    figures: dict[str, int | None] = dict.fromkeys(OFFERED)
    if offered is not None:
        offered |= _less_third_party(offered, facts)
        figures |= {field: amount for field, (amount, _) in offered.items()}
    floored = published_floor(figures, pods, facts.capacity)
    terms = {one.of: one.terms for one in floored.because if one.bound == "floored"}
    if offered is not None:
        terms = {field: arithmetic for field, (_, arithmetic) in offered.items()}
    return NodeAllocatable(
        node=metric.node,
        boot_id=metric.boot_id,
        seq=metric.seq,
        observed_ms=metric.observed_ms,
        policy_version=metric.policy_version,
        facts_revision=metric.facts_revision,
        pods_revision=metric.pods_revision,
        window_ms=metric.window_ms,
        covered_ms=metric.covered_ms,
        batch_cpu_milli=floored.figures["batch_cpu_milli"],
        batch_mem_bytes=floored.figures["batch_mem_bytes"],
        reason=reason,
        cpu_terms=terms.get("batch_cpu_milli", {}),
        mem_terms=terms.get("batch_mem_bytes", {}),
        mid_cpu_milli=floored.figures["mid_cpu_milli"],
        mid_mem_bytes=floored.figures["mid_mem_bytes"],
        mid_cpu_terms=terms.get("mid_cpu_milli", {}),
        mid_mem_terms=terms.get("mid_mem_bytes", {}),
        floored=[one.of for one in floored.because if one.bound == "floored"],
        inventory_revision=inventory_revision,
        forecast_revision=forecast.revision,
        prediction=forecast.prediction,
        free_cpu_milli=floored.figures["free_cpu_milli"],
        free_mem_bytes=floored.figures["free_mem_bytes"],
        free_cpu_terms=terms.get("free_cpu_milli", {}),
        free_mem_terms=terms.get("free_mem_bytes", {}),
    )


def _less_third_party(offered: Offered, facts: NodeFacts) -> Offered:
    """Return batch amounts less what other schedulers hold; 0 if the annotation cannot be read."""
    if ANNOTATION not in facts.annotations:
        return {}
    try:
        held = third_party(facts.annotations)
    except BadMessageError:
        held = ThirdParty(cpu_milli=AMOUNT_MAX, mem_bytes=AMOUNT_MAX)
    found: Offered = {}
    for field, unit, given in zip(OFFERED, ("milli", "bytes"), (held.cpu_milli, held.mem_bytes), strict=False):
        amount, terms = offered[field]
        taken = min(given, amount)
        found[field] = amount - taken, {**terms, f"third_party_{unit}": taken, f"offered_{unit}": amount - taken}
    return found


def _offered(load: NodeLoad, metric: NodeMetric, colocation: Colocation, forecast: MidForecast) -> Offered | None:
    """None: out of range, since a node's own strategy is not validated (a ratio of 1e300, a percentage of 2**63)."""
    try:
        batch = batch_resource(load, colocation)
        mid = mid_resource(load, colocation, reclaimable=forecast.reclaimable, node_use=metric.node_use)
        free = free_resource(load, colocation) if colocation.free_class_enable else None
    except OverflowError:
        return None
    tiers = [one for one in (batch, mid, free) if one is not None]
    amounts = [amount for one in tiers for amount in (one.cpu_milli, one.mem_bytes)]
    terms = [because.terms for one in tiers for because in one.because]
    if max(amounts) > AMOUNT_MAX or any(abs(value) > INT64_MAX for one in terms for value in one.values()):
        return None
    limits = capacity_of(load.facts) * len(tiers)
    each = zip(OFFERED, amounts, terms, limits, strict=False)
    return {of: within_capacity(of, amount, why, limit) for of, amount, why, limit in each}
