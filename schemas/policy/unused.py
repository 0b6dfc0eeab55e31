"""What a policy sets that has no effect on any node, as far as the policy alone shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.schemas.policy.configmap import CONFIGS
from slacktide.schemas.policy.effective import Effective, effective
from slacktide.schemas.policy.idle import Idle, idle
from slacktide.schemas.policy.message import NodeStrategy, Policy
from slacktide.schemas.policy.selector import Selector

_PLAIN = NodeFacts(name="", capacity=Resources(), allocatable=Resources())
"""A node that sets nothing of its own."""
_FOR_NODES = [config for config in CONFIGS if config.nodes]
_NO_NODES: dict[str, Any] = {config.node_field: [] for config in _FOR_NODES}


def unused(policy: Policy) -> Iterator[Idle]:
    """What is set and without effect wherever it holds.

    What the cluster sets may wait for a node strategy: ``enable`` for some nodes only is how one begins.
    """
    cluster = msgspec.structs.replace(policy, **_NO_NODES)
    on_nodes = [_alone(cluster, config.strategy, node)
                for config in _FOR_NODES for node in getattr(policy, config.node_field)]  # fmt: skip
    for one in idle(effective(cluster, _PLAIN)):
        if not any(_acts(one, found) for found in on_nodes):
            yield one
    for found in on_nodes:
        yield from (one for one in idle(found) if one.source.layer == "node strategy")


def _alone(cluster: Policy, strategy: str, node: NodeStrategy[Any]) -> Effective:
    """The policy of nodes with this node strategy."""
    everywhere = msgspec.structs.replace(node, selector=Selector())
    return effective(msgspec.structs.replace(cluster, **{f"node_{strategy}": [everywhere]}), _PLAIN)


def _acts(one: Idle, found: Effective) -> bool:
    """Whether what the cluster sets, and is idle there, acts here."""
    if found.source(f"{one.strategy}.{one.field}") != one.source:
        return False
    return not any((other.strategy, other.field) == (one.strategy, one.field) for other in idle(found))
