"""Detects a broken pipeline: too many nodes fell silent together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

TOGETHER_MS = 30_000
"""Nodes fell silent together if their silence began within this time."""
FALLEN_MIN = 5
"""Fewer silent nodes are never an outage."""
SHARE = 10
"""More than one node in this many is an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """The silence of one node."""

    partition: int
    fallen: bool
    """The node fell silent recently, or has been frozen since."""


def frozen(nodes: Mapping[str, Quiet]) -> frozenset[str]:
    """Return the nodes that must not be reported stale, since the pipeline is broken.

    It is broken if at least five nodes fell silent: more than a tenth of all nodes, or all nodes of a partition.

    Args:
        nodes: by name, without those that have been silent for long.
    """
    fallen = [name for name, node in nodes.items() if node.fallen]
    if len(fallen) < FALLEN_MIN:
        return frozenset()
    if len(fallen) * SHARE > len(nodes):
        return frozenset(fallen)
    of_partition = Counter(node.partition for node in nodes.values())
    fallen_of = Counter(nodes[name].partition for name in fallen)
    whole = {number for number, count in fallen_of.items() if FALLEN_MIN <= count == of_partition[number]}
    return frozenset(name for name in fallen if nodes[name].partition in whole)
