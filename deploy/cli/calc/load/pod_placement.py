"""``slacktide calc pod_placement``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, GivenResources
from slacktide.deploy.cli.calc.load.load_aware_case import GivenArgs, GivenLoadAwarePod, GivenReport, GivenUse
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.load.load_aware_existing import AssignCache
from slacktide.streams.decisions.load.load_aware_scheduling import NodeState, allocatable_of
from slacktide.streams.decisions.load.pod_placement import NodeView, PlacementArgs, Ranked, asking, choose

_NOTHING = GivenUse()


class GivenPlacementNode(Given, frozen=True, kw_only=True):
    """A node, its records, and the pods placed there."""

    name: str
    allocatable: GivenResources | None = None
    node_metric: GivenReport | None = None
    assigned_pods: list[GivenLoadAwarePod] | None = None
    silent: str = ""
    expired: bool = False
    pressure: list[str] = []
    batch_left: GivenUse | None = None
    mid_left: GivenUse | None = None
    free_left: GivenUse | None = None


class Input(Given, frozen=True, kw_only=True):
    """A pod, the candidate nodes, and the settings."""

    pod: GivenLoadAwarePod
    nodes: list[GivenPlacementNode]
    args: GivenArgs | None = None
    load_weight: Amount = 1
    balance_weight: Amount = 1


def calculate(given: Input) -> Calculated:
    """Filter and rank the nodes for a pod."""
    load = (given.args or GivenArgs()).args
    args = PlacementArgs(load=load, load_weight=given.load_weight, balance_weight=given.balance_weight)
    views = [_view(node, args) for node in given.nodes]
    choice = choose(asking(given.pod.asked, args), views, args)
    return Calculated(
        output={
            "refused": {node: refusal.reason for node, refusal in sorted(choice.refused.items())},
            "ranked": [{"node": one.name, "level": one.level} for one in choice.ranked],
        },
        because=[_because(one) for one in choice.ranked],
    )


def _view(node: GivenPlacementNode, args: PlacementArgs) -> NodeView:
    cache = AssignCache(args=args.load, report=node.node_metric.report if node.node_metric else None)
    for assigned in node.assigned_pods or ():
        cache.assign(assigned.asked, at_s=0)
    return NodeView(
        name=node.name,
        state=NodeState(
            allocatable=allocatable_of(node.allocatable or GivenResources(), GivenResources()),
            custom=args.load.thresholds,
            load=cache.load(),
            args=args.load,
        ),
        silent=node.silent,
        expired=node.expired,
        pressure=node.pressure,
        batch_left=(node.batch_left or _NOTHING).amounts,
        mid_left=(node.mid_left or _NOTHING).amounts,
        free_left=(node.free_left or _NOTHING).amounts,
    )


def _because(ranked: Ranked) -> Because:
    return Because(of=f"nodes/{ranked.name}/score_permille", bound=ranked.bound, terms=ranked.terms)
