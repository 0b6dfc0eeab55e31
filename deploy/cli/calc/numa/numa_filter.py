"""``slacktide calc numa_filter``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.deploy.cli.calc.numa.numa_case import GivenAmounts, NodeCase, amounts_of, key_of, terms_of, written
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.numa.filter import Failure, Filtered, Node, numa_filter


class GivenNode(Given, frozen=True, kw_only=True):
    """The node's allocatable resources."""

    allocatable: GivenAmounts | None = None


class Input(NodeCase, frozen=True, kw_only=True):
    """A pod, and a node with its zones."""

    node: GivenNode


def calculate(given: Input) -> Calculated:
    """Check whether a node's zones can hold a pod."""
    node = Node(
        allocatable=amounts_of(given.node.allocatable, "input.node.allocatable"),
        kubelet=given.settings(),
        zones=given.zones_for_sets() if given.corrected else given.zones(),
        fresh=given.topology_fresh,
    )
    found = numa_filter(given.pod.pod("input.pod"), node, corrected=given.corrected)
    failure = found.failure or Failure(message="")
    first = failure.lacks[0] if failure.lacks else None
    output: dict[str, object] = {
        "fits": found.fits,
        "message": failure.message or None,
        "failed_container": failure.container,
        "failed_kind": failure.kind,
        "failed_resource": None if first is None else first.resource,
        "failed_because": first.why if first else "topology_not_fresh" if found.failure else None,
        "placed": [{"container": one.container, "zone": min(one.zones, default=None)} for one in found.placed],
        "marks_node": found.marks_node,
    }
    lacks = [
        Because(of=f"lacks/{key_of(lack.resource)}", bound=lack.why, terms=terms_of(lack)) for lack in failure.lacks
    ]
    return Calculated(output=output | (_corrected(found) if given.corrected else {}), because=lacks)


def _corrected(found: Filtered) -> dict[str, object]:
    failure = found.failure
    return {
        "placed": [{"container": one.container, "zones": list(one.zones)} for one in found.placed],
        "lacks": [] if failure is None else [key_of(lack.resource) for lack in failure.lacks],
        "moved_containers": list(found.moved),
        "overhead_not_charged": written(found.not_charged),
    }
