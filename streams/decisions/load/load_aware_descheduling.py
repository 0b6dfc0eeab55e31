"""Which pods leave overloaded nodes, where other nodes have room for them: one pass over the cluster.

First nodes that are over by all that runs there give, then those that are over by production pods alone.

Reading: koordinator a7a1b76b, pkg/descheduler/framework/plugins/loadaware/{low_node_load,utilization_util}.go.
The reference takes equals in the order of its maps; here sources go by score and name, targets by class and name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_anomaly import Rows, counted, lasts
from slacktide.streams.decisions.load.load_aware_classify import Survey, ViewedNode
from slacktide.streams.decisions.load.load_aware_phase import Eviction, Kind, Moved, Phase, move, room
from slacktide.streams.decisions.load.load_aware_thresholds import Amounts, with_unit


@dataclass(frozen=True, slots=True, kw_only=True)
class DeschedulingPolicy:
    """When a pass evicts, and whom."""

    too_few_targets: int = 0
    """Act only if more nodes than this have room."""
    node_fit: bool = True
    """Evict only what would find a place."""
    lands: bool = False
    """What finds a place takes it from the next pod. The reference counts usage alone, so pods that fit one by one
    may all be chosen."""
    weights: Mapping[str, int] = field(default_factory=lambda: {"cpu": 1, "memory": 1})
    """How much each resource counts in the order of nodes and of pods."""
    consecutive_abnormalities: int = 5
    """Passes in a row in which a node may be over before it must give; 1: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassState:
    """What a pass hands to the next one: for how long nodes have been over, in either view."""

    whole: Rows = field(default_factory=dict)
    prod: Rows = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Descheduled:
    """One pass: the victims in order, and the state for the next one."""

    evictions: tuple[Eviction, ...]
    state: PassState
    rows: PassState
    """The state for the next one if nobody could leave: rows of nodes that were to be relieved go on."""
    because: tuple[Because, ...]
    """For how long each source has been over and what the pass did; if it acted, per phase and resource the budget,
    and per source why it stopped."""


def deschedule(seen: Survey, policy: DeschedulingPolicy, before: PassState) -> Descheduled:
    """One pass over what a survey saw; a node that it relieves starts a new row of passes."""
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
    """Why the pass does nothing; "": it acts. That all nodes have room cannot be: a source has none."""
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
    """By all that runs on the nodes, then by production pods; the targets of both have what the first left."""
    low, prod_low, both_low = (seen.classes[name] for name in ("low", "prod_low", "both_low"))
    budget, reasons = _budget(seen)
    first = move(_phase("whole", sources, [*low, *both_low], budget, policy))
    prod_budget, prod_reasons = _prod_budget(seen, first.left)
    second = move(_phase("prod", prod_sources, [*prod_low, *both_low], prod_budget, policy))
    return replace(first, because=(*reasons, *first.because)), replace(second, because=(*prod_reasons, *second.because))


def _phase(
    kind: Kind,
    sources: Sequence[ViewedNode],
    targets: Sequence[ViewedNode],
    budget: Amounts,
    policy: DeschedulingPolicy,
) -> Phase:
    return Phase(
        kind=kind,
        sources=sources,
        targets=targets,
        budget=budget,
        node_fit=policy.node_fit,
        lands=policy.lands,
        weights=policy.weights,
    )


def _budget(seen: Survey) -> tuple[Amounts, list[Because]]:
    """The room that all targets of the node phase have together."""
    low = room(seen.classes["low"], "whole", seen.resources)
    both_low = room(seen.classes["both_low"], "whole", seen.resources)
    budget = {name: low[name] + both_low[name] for name in seen.resources}
    because = []
    for name in seen.resources:
        unit = with_unit(name)
        terms: Terms = {
            f"low_{unit}": low[name],
            f"both_low_{unit}": both_low[name],
            f"budget_{unit}": budget[name],
        }
        because.append(Because(of=f"whole/budget/{name}", bound="formula", terms=terms))
    return budget, because


def _prod_budget(seen: Survey, left: Amounts) -> tuple[Amounts, list[Because]]:
    """The room for production pods; on the common targets no more than the node phase left there.

    What it left is not known per target: at most what it left in all.
    """
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
