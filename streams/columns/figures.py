"""Computes from a block and its windows what to publish of each node."""

from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import NamedTuple, TypeVar

import numpy as np

from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.policy import Policy
from slacktide.streams.columns.block import Block
from slacktide.streams.columns.head import CAPACITY, FIT, SERIAL, Head
from slacktide.streams.columns.node_figures import (
    PUBLISH_MS_MIN,
    SOONER_MS,
    WORTH_PUBLISHING,
    Candidate,
    Worth,
    aggregates_of,
    beyond,
    metric_of,
    metrics_of,
    revisions,
)
from slacktide.streams.columns.offered import OfferInputs, offer_inputs
from slacktide.streams.columns.publish import Due, Figures, pod_line, publish
from slacktide.streams.columns.rings import FIGURES, LENGTHS_S, Bools, Ints, Spreads, chained
from slacktide.streams.columns.screen import NONE, OTHER_LIMITS
from slacktide.streams.columns.series import NEVER, OWN
from slacktide.streams.columns.windows import Averages, Windows
from slacktide.streams.decisions.suppress.cpu_suppress_quota import PERIOD_US
from slacktide.streams.records import isolated

N = TypeVar("N")

_UNLIMITED_MILLI = 1 << 62


class Found(NamedTuple):
    """The nodes of a wave that have something to publish."""

    places: Sequence[int]
    of: Worth


def worth(
    windows: Windows,
    block: Block[N],
    merged: Sequence[int],
    policy: Policy,
    republish_ms: int,
    candidate: Callable[[Block[N], int], Candidate | None],
) -> Found:
    """Find the nodes that have something to publish, as ``worth_publishing`` does.

    ``merged``: samples merged into the windows; no node twice. ``candidate`` returns None if a sample must not be
    published.
    """
    if not merged:
        return Found((), Worth((), (), ()))
    taken = np.array(merged, np.int64)
    published_ms = windows.marks.published_ms[block.rows[taken]]
    since_ms = block.columns.node[taken, 1] - published_ms
    asked = (published_ms == NEVER) | (since_ms < 0) | (since_ms >= PUBLISH_MS_MIN)
    if not asked.any():
        return Found((), Worth((), (), ()))
    taken, since_ms, published_ms = taken[asked], since_ms[asked], published_ms[asked]
    places = taken.tolist()
    heads = [block.heads[at] for at in places]
    same = _same(windows, block, taken, policy, candidate)
    rows = np.concatenate([head.window.all_rows for head in heads])
    lengths = windows.marks.series[block.rows[taken]]
    begins = np.cumsum(lengths) - lengths
    values = windows.series.averages(rows)
    known = ~np.isnan(values[begins]).any(1) & ~np.isnan(values[begins + 1]).any(1)
    bands = block.numbers[taken, CAPACITY] * WORTH_PUBLISHING
    moved = same & beyond(values, windows.series.published(rows), begins, bands)
    due = known & (moved | ~same | (published_ms == NEVER) | (since_ms < 0) | (since_ms >= republish_ms - SOONER_MS))
    which = np.nonzero(due)[0].tolist()
    of_block = [(at, candidate(block, places[at])) for at in which]
    chosen = [(at, one) for at, one in of_block if one is not None]
    counts = windows.series.totals(np.array([heads[at].window.own[2] for at, _ in chosen], np.int64)).tolist()
    return Found(
        [places[at] for at, _ in chosen],
        Worth(
            [one for _, one in chosen],
            [values[begins[at] : begins[at] + lengths[at]] for at, _ in chosen],
            counts,
        ),
    )


def holding(windows: Windows, block: Block[N], merged: Sequence[int], republish_ms: int, at_ms: int) -> list[int]:
    """Find the samples of nodes whose published figures hold, as ``holds`` does; a node once per tick ``at_ms``."""
    its = np.array(merged, np.int64)
    rows, marks = block.rows[its], windows.marks
    published_ms = marks.published_ms[rows]
    since_ms = block.columns.node[its, 1] - published_ms
    holds = (published_ms != NEVER) & (since_ms >= 0) & (since_ms < republish_ms - SOONER_MS)
    holds &= marks.held_ms[rows] != at_ms
    marks.held_ms[rows[holds]] = at_ms
    found: list[int] = its[holds].tolist()
    return found


def _same(
    windows: Windows,
    block: Block[N],
    taken: Ints,
    policy: Policy,
    candidate: Callable[[Block[N], int], Candidate | None],
) -> Bools:
    rows, serials = block.rows[taken], block.numbers[taken, SERIAL]
    same: Bools = windows.marks.published_by[rows] == serials
    for at in np.nonzero(~same)[0].tolist():
        place = int(taken[at])
        window = block.heads[place].window
        if window.published is None or window.published.rows is not window.all_rows:
            continue
        one = candidate(block, place)
        if one is not None and window.published.revisions == revisions(one, policy):
            windows.marks.published_by[rows[at]] = serials[at]
            same[at] = True
    return same


class Gathered(NamedTuple):
    """Nodes of a wave whose records are encoded later, together with those of other waves."""

    places: Sequence[int]
    """Of each node's sample in the block."""
    nodes: Sequence[Candidate]
    metrics: Sequence[NodeMetric | Exception | None]
    """None: arrays encode the node's records from ``due``. Otherwise the scalar rules compute the rest, or failed."""
    due: Due | None


def gather(windows: Windows, block: Block[N], found: Found, policy: Policy) -> Gathered:
    """Gather what the records of a wave's nodes are encoded from, before the next wave changes the windows."""
    places, of = found
    numbers = range(len(places))
    try:
        plain, due = _plain(windows, block, found, policy)
    except Exception:  # noqa: BLE001 - the rules find which node's figures are invalid
        plain, due = [], None
    alone = sorted(set(numbers).difference(plain))
    its: Sequence[NodeMetric | Exception] = isolated(
        lambda some: metrics_of(windows, of, some, policy), alone, lambda _, error: [error]
    )
    metrics = dict(zip(alone, its, strict=True))
    return Gathered(places, of.nodes, [metrics.get(at) for at in numbers], due)


def _plain(windows: Windows, block: Block[N], found: Found, policy: Policy) -> tuple[list[int], Due | None]:
    """Find the nodes that arrays can encode, and gather their figures."""
    places, (nodes, values, counts) = found
    offers = [_offer(block.heads[place], one, policy) for place, one in zip(places, nodes, strict=True)]
    plain = [
        at
        for at, (place, offer) in enumerate(zip(places, offers, strict=True))
        if offer.plain
        and block.numbers[place, 0]
        and block.quotas_us[place] != OTHER_LIMITS
        and not np.isnan(values[at][OWN:]).any()
    ]
    if not plain:
        return [], None
    aggregates, known = windows.rings.spread_columns(np.array([nodes[at].window.row for at in plain]))
    if not known.all():
        plain, aggregates = list(compress(plain, known.tolist())), aggregates[known]
    if not plain:
        return [], None
    of = Worth([nodes[at] for at in plain], [values[at] for at in plain], [counts[at] for at in plain])
    return plain, _due(block, [places[at] for at in plain], of, [offers[at] for at in plain], aggregates)


def encoded(
    waves: Sequence[Gathered], policy: Policy
) -> Iterator[tuple[int, Candidate, Figures | NodeMetric | Exception]]:
    """Encode the records of gathered nodes, in order; a NodeMetric: the scalar rules compute the rest, or failed."""
    figures = iter(_published([one.due for one in waves if one.due is not None], policy))
    for places, nodes, metrics, due in waves:
        at = begin = 0
        for place, candidate, metric in zip(places, nodes, metrics, strict=True):
            if metric is not None:
                yield place, candidate, metric
                continue
            assert due is not None  # it has the nodes without a metric
            one: Figures | NodeMetric | Exception | None = next(figures)
            if one is None:
                try:
                    one = _metric(candidate, policy, due, at, begin)
                except Exception as exc:  # noqa: BLE001 - one node's figures
                    one = exc
            yield place, candidate, one
            begin += int(due.counts[at])
            at += 1


def _published(dues: Sequence[Due], policy: Policy) -> Sequence[Figures | None]:
    if not dues:
        return []
    try:
        return publish(chained(dues), policy.version)
    except Exception:  # noqa: BLE001 - the rules find which node's figures are invalid
        return [None] * sum(len(due.named) for due in dues)


def _metric(one: Candidate, policy: Policy, due: Due, at: int, begin: int) -> NodeMetric:
    """Build a gathered node's NodeMetric; ``begin``: where its pods begin in ``due``."""
    node, system = due.own[at].tolist()
    averages = Averages(
        covered_ms=due.covered_ms[at],
        samples=due.samples[at],
        node=Use(cpu_milli=node[0], mem_bytes=node[1]),
        system=Use(cpu_milli=system[0], mem_bytes=system[1]),
        pods=due.pods[begin : begin + int(due.counts[at])].tolist(),
    )
    spreads = [
        Spreads(length_s, [covered_ms], [np.reshape(figures, (FIGURES, -1)).tolist()])
        for length_s, (covered_ms, *figures) in zip(LENGTHS_S, due.aggregates[at].tolist(), strict=True)
    ]
    return metric_of(
        one, policy, averages, aggregates_of(spreads, 0), names=due.offers[at].names, window_ms=due.windows_ms[at]
    )


def _offer(head: Head[N], one: Candidate, policy: Policy) -> OfferInputs:
    names, offer = one.window.names, head.offer
    if offer is None or not offer.holds(names, head.pods, one.facts, policy, one.forecast):
        offer = head.offer = offer_inputs(names, head.pods, one.facts, policy, one.forecast, pod_line, offer)
    return offer


def _due(block: Block[N], places: Sequence[int], found: Worth, offers: Sequence[OfferInputs], aggregates: Ints) -> Due:
    nodes, values, counts = found
    whole = np.rint(np.concatenate(values))
    whole[np.isnan(whole)] = 0  # coverage is not an average
    lengths = np.array([len(one) for one in values])
    begins = np.cumsum(lengths) - lengths
    own = np.zeros(len(whole), np.bool_)
    own[(begins[:, None] + np.arange(OWN)).ravel()] = True
    figures = whole.astype(np.int64)
    quotas = np.array([block.quotas_us[place] for place in places], np.int64)
    fits = block.numbers[places, FIT]
    used = block.columns.node[places, 4]
    windows_ms = nodes[0].window.marks.window_ms[block.rows[places]].tolist()
    return Due(
        named=[one.sample for one in nodes],
        offers=offers,
        windows_ms=windows_ms,
        inventory_revisions=[one.inventory_revision for one in nodes],
        late=[one.late for one in nodes],
        covered_ms=[min(most_ms, round(its[0])) for most_ms, its in zip(windows_ms, counts, strict=True)],
        samples=[round(its[1]) for its in counts],
        own=figures[own].reshape(-1, OWN, 2)[:, :2],
        pods=figures[~own],
        counts=lengths - OWN,
        aggregates=aggregates,
        suppressed_milli=np.where(quotas == NONE, _UNLIMITED_MILLI, quotas * 1_000 // PERIOD_US),
        over_line=(used > 0) & (used * 100 // np.maximum(fits[:, 4], 1) >= fits[:, 5]),
    )
