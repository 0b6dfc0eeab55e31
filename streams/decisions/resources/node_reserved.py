"""Computes the resources reserved on a node (FORMULAS' "node reserved").

Reading: koordinator a7a1b76b, pkg/util/node.go, GetNodeReservationFromAnnotation and kubelet reserved.
"""

from __future__ import annotations

from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.streams.decisions.cpu_list import cpu_list


def node_reserved(facts: NodeFacts) -> Resources:
    """Return the larger of the kubelet's and the annotation's reservation, in millicores and bytes.

    A CPU list in the annotation replaces its CPU amount. An invalid list voids the annotation.
    """
    kept_milli = max((facts.capacity.cpu_milli or 0) - (facts.allocatable.cpu_milli or 0), 0)
    kept_bytes = max((facts.capacity.mem_bytes or 0) - (facts.allocatable.mem_bytes or 0), 0)
    asked_milli, asked_bytes = facts.reserved.cpu_milli or 0, facts.reserved.mem_bytes or 0
    if facts.reserved_cpus:
        cpus = cpu_list(facts.reserved_cpus)
        if cpus is None:
            asked_milli = asked_bytes = 0
        elif cpus:
            asked_milli = len(cpus) * 1000
    return Resources(cpu_milli=max(kept_milli, asked_milli), mem_bytes=max(kept_bytes, asked_bytes))
