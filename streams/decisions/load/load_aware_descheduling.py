"""Selects pods to evict from overloaded nodes in one pass, if other nodes have room.

Nodes that are over in the whole view come first, then nodes that are over in the production view. Reading: koordinator
a7a1b76b, pkg/descheduler/framework/plugins/loadaware/{low_node_load,utilization_util}.go. The reference orders ties by
its maps. Here, sources are in order of score and name, targets of class and name. The reference's detectors of
anomalies also forget by time. Here, a row ends with a pass in which the node is not over or has no usable metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_classify import Amounts, Survey, ViewedNode, with_unit
from slacktide.streams.decisions.load.load_aware_phase import DeschedulingPolicy, Eviction, Kind, Moved, move, room

Rows = Mapping[str, int]
"""Node -> consecutive passes in which it was over, including this one."""


def counted(before: Rows, over: Iterable[str]) -> dict[str, int]:
    """Return the rows after a pass. The rows of nodes that are not over end."""
    return {node: before.get(node, 0) + 1 for node in over}


def lasts(row: int, tolerated: int) -> bool:
    """Return whether a row is longer than tolerated. A tolerance of 1 means no wait."""
    return tolerated == 1 or row > tolerated


@dataclass(frozen=True, slots=True, kw_only=True)
class PassState:
    """The rows of overloaded nodes in both views, which the next pass reads."""

    whole: Rows = field(default_factory=dict)
    prod: Rows = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Descheduled:
    """The result of one pass: the victims in order, and the state for the next pass."""

    evictions: tuple[Eviction, ...]
    state: PassState
    rows: PassState
    """The state for the next pass if no eviction succeeds: the rows of relieved nodes continue."""
    because: tuple[Because, ...]
    """Each source's row, and the pass's result. If it acted, also the budgets, and why each source stopped."""


def deschedule(seen: Survey, policy: DeschedulingPolicy, before: PassState) -> Descheduled:
    """Run one pass over a survey. A relieved node starts a new row."""
    whole, prod = seen.classes["high"], seen.classes["prod_high"]
    rows = PassState(whole=counted(before.whole, _names(whole)), prod=counted(before.prod, _names(prod)))
    sources = _lasting(whole, rows.whole, policy)
    prod_sources = _lasting(prod, rows.prod, policy)
    because = [*_why_rows("whole", rows.whole, policy), *_why_rows("prod", rows.prod, policy)]
    terms: Terms = {
        "over_nodes": len(whole) + len(prod),
        "lasting_nodes": len(sources) + len(prod_sources),
        "too_few_nodes": policy.too_few_targets,
        "target_nodes": sum(len(seen.classes[name]) for name in ("low", "prod_low", "both_low")),
    }
    bound = _held_back(terms)
    because.append(Because(of="pass", bound=bound or "acted", terms=terms))
    if bound:
        return Descheduled(evictions=(), state=rows, rows=rows, because=tuple(because))
    first, second = _phases(seen, sources, prod_sources, policy)
    return Descheduled(
        evictions=first.evictions + second.evictions,
        state=PassState(whole=_without(rows.whole, first.relieved), prod=_without(rows.prod, second.relieved)),
        rows=rows,
        because=(*because, *first.because, *second.because),
    )


def _held_back(terms: Terms) -> str:
    """Return why the pass does nothing, or "". Not all nodes can have room, because a source has none."""
    if not terms["over_nodes"]:
        return "none_over"
    if not terms["lasting_nodes"]:
        return "none_lasting"
    if not terms["target_nodes"]:
        return "no_targets"
    return "too_few_targets" if terms["target_nodes"] <= terms["too_few_nodes"] else ""


def _phases(
    seen: Survey, sources: Sequence[ViewedNode], prod_sources: Sequence[ViewedNode], policy: DeschedulingPolicy
) -> tuple[Moved, Moved]:
    """Run the whole phase, then the production phase, which gets the room left on common targets."""
    low, prod_low, both_low = (seen.classes[name] for name in ("low", "prod_low", "both_low"))
    budget, reasons = _budget(seen)
    first = move("whole", sources, [*low, *both_low], budget, policy)
    prod_budget, prod_reasons = _prod_budget(seen, first.left)
    second = move("prod", prod_sources, [*prod_low, *both_low], prod_budget, policy)
    return replace(first, because=(*reasons, *first.because)), replace(second, because=(*prod_reasons, *second.because))


def _budget(seen: Survey) -> tuple[Amounts, list[Because]]:
    low = room(seen.classes["low"], "whole", seen.resources)
    both_low = room(seen.classes["both_low"], "whole", seen.resources)
    budget = {name: low[name] + both_low[name] for name in seen.resources}
    because = []
    for name in seen.resources:
        unit = with_unit(name)
        terms: Terms = {f"low_{unit}": low[name], f"both_low_{unit}": both_low[name], f"budget_{unit}": budget[name]}
        because.append(Because(of=f"whole/budget/{name}", bound="formula", terms=terms))
    return budget, because


def _prod_budget(seen: Survey, left: Amounts) -> tuple[Amounts, list[Because]]:
    """Sum the room for production pods. Common targets have at most the budget that the whole phase left."""
    prod_low = room(seen.classes["prod_low"], "prod", seen.resources)
    common = room(seen.classes["both_low"], "whole", seen.resources)
    common_prod = room(seen.classes["both_low"], "prod", seen.resources)
    budget, because = {}, []
    for name in seen.resources:
        unit = with_unit(name)
        whole = min(common[name], left[name])
        budget[name] = prod_low[name] + min(common_prod[name], whole)
        terms: Terms = {
            f"prod_low_{unit}": prod_low[name],
            f"both_low_prod_{unit}": common_prod[name],
            f"both_low_whole_{unit}": common[name],
            f"left_{unit}": left[name],
            f"budget_{unit}": budget[name],
        }
        bound = "prod_room" if common_prod[name] <= whole else "whole_room"
        because.append(Because(of=f"prod/budget/{name}", bound=bound, terms=terms))
    return budget, because


def _names(nodes: Iterable[ViewedNode]) -> list[str]:
    return [node.node.name for node in nodes]


def _lasting(nodes: Iterable[ViewedNode], rows: Rows, policy: DeschedulingPolicy) -> list[ViewedNode]:
    return [node for node in nodes if lasts(rows[node.node.name], policy.consecutive_abnormalities)]


def _without(rows: Rows, relieved: Iterable[str]) -> Rows:
    ended = set(relieved)
    return {name: row for name, row in rows.items() if name not in ended}


def _why_rows(kind: Kind, rows: Rows, policy: DeschedulingPolicy) -> list[Because]:
    tolerated = policy.consecutive_abnormalities
    return [
        Because(
            of=f"nodes/{name}/{kind}/row",
            bound="lasting" if lasts(row, tolerated) else "waiting",
            terms={"tolerated_passes": tolerated, "row_passes": row},
        )
        for name, row in rows.items()
    ]
