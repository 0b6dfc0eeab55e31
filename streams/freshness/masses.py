"""Whether so many nodes fell silent together that something between them and the worker broke, and not they."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

TOGETHER_MS = 30_000
"""Nodes whose silence began within this fell silent together."""
FALLEN_MIN = 5
"""Fewer are so many nodes that stopped."""
SHARE = 10
"""More than one in so many is no accident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """One node that can be judged."""

    partition: int
    fallen: bool
    """Nothing came from it lately, and it is not long since that began; or it has been held frozen since then."""


def frozen(nodes: Mapping[str, Quiet]) -> frozenset[str]:
    """Those of the nodes of which nothing may be published, for it is the pipeline that broke.

    A mass is more than a tenth of all nodes, or all of a partition; either only from five nodes on.

    Args:
        nodes: by name; without those that have been silent for long.

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
