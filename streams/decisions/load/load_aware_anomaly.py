"""Overload counts only when it lasts: how many passes in a row each node was over its high thresholds.

Reading: koordinator a7a1b76b, pkg/descheduler/framework/plugins/loadaware/low_node_load.go,
filterRealAbnormalNodes. Its detectors also forget by the clock; here a pass in which the node is not over, or has
no usable metric, ends the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Rows = Mapping[str, int]
"""Node -> passes in a row that it was over, this one included."""


def counted(before: Rows, over: Iterable[str]) -> dict[str, int]:
    """The rows after a pass that found these nodes over; other nodes' rows have ended."""
    return {node: before.get(node, 0) + 1 for node in over}


def lasts(row: int, tolerated: int) -> bool:
    """Whether a row is an anomaly: longer than is tolerated. To tolerate 1 means not to wait at all."""
    return tolerated == 1 or row > tolerated
