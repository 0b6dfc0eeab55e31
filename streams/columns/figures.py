"""Computes from a block and its windows what to publish of each node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from slacktide.schemas.policy import Policy
from slacktide.streams.columns.block import Block
from slacktide.streams.columns.head import CAPACITY, FIT, SERIAL, Head
from slacktide.streams.columns.marked import MarksError
from slacktide.streams.columns.market import Market, market_of
from slacktide.streams.columns.node_figures import (
    PUBLISH_MS_MIN,
    SOONER_MS,
    WORTH_PUBLISHING,
    Candidate,
    Worth,
    beyond,
    revisions,
)
from slacktide.streams.columns.node_window import NEVER, OWN
from slacktide.streams.columns.publish import Due, Figures, pod_line, publish
from slacktide.streams.columns.rings import Ints
from slacktide.streams.columns.screen import NONE, OTHER_LIMITS, Bools
from slacktide.streams.columns.windows import Windows
from slacktide.streams.decisions.suppress.cpu_suppress_cfs_quota import PERIOD_US

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


def publish_columns(
    windows: Windows, block: Block[N], places: Sequence[int], found: Worth, policy: Policy
) -> list[Figures | None]:
    """Build the records of nodes; None: left to the scalar rules. ``places``: of each node's sample in the block."""
    results: list[Figures | None] = [None] * len(places)
    markets = [_market(block.heads[place], one, policy) for place, one in zip(places, found.nodes, strict=True)]
    plain = [
        at
        for at, market in enumerate(markets)
        if market.plain
        and block.numbers[places[at], 0]
        and block.quotas_us[places[at]] != OTHER_LIMITS
        and not np.isnan(found.values[at][OWN:]).any()
    ]
    if not plain:
        return results
    rows = np.array([found.nodes[at].window.row for at in plain])
    aggregates, known = windows.rings.spread_columns(rows)
    plain = [at for at, whole in zip(plain, known.tolist(), strict=True) if whole]
    if not plain:
        return results
    of = Worth(
        [found.nodes[at] for at in plain], [found.values[at] for at in plain], [found.counts[at] for at in plain]
    )
    due = _due(block, [places[at] for at in plain], of, [markets[at] for at in plain], aggregates[known])
    try:
        published = publish(due, policy.version)
    except MarksError:
        return results
    for at, one in zip(plain, published, strict=True):
        results[at] = one
    return results


def _market(head: Head[N], one: Candidate, policy: Policy) -> Market:
    names, market = one.window.names, head.market
    if market is None or not market.holds(names, head.pods, one.facts, policy, one.forecast):
        market = head.market = market_of(names, head.pods, one.facts, policy, one.forecast, pod_line, market)
    return market


def _due(block: Block[N], places: Sequence[int], found: Worth, markets: Sequence[Market], aggregates: Ints) -> Due:
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
        markets=markets,
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
