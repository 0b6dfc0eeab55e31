"""Counts the consecutive passes in which each node was over its high thresholds.

Reading: koordinator a7a1b76b, pkg/descheduler/framework/plugins/loadaware/low_node_load.go,
filterRealAbnormalNodes. The reference's detectors also forget by time. Here, a row ends with a pass in which the node
is not over or has no usable metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Rows = Mapping[str, int]
"""Node -> consecutive passes in which it was over, including this one."""


def counted(before: Rows, over: Iterable[str]) -> dict[str, int]:
    """Return the rows after a pass. The rows of nodes that are not over end."""
    return {node: before.get(node, 0) + 1 for node in over}


def lasts(row: int, tolerated: int) -> bool:
    """Return whether a row is longer than tolerated. A tolerance of 1 means no wait."""
    return tolerated == 1 or row > tolerated
