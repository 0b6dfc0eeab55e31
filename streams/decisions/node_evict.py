"""Who shall leave a node, by memory and by CPU: the live side of the eviction rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod that shall go, and why."""

    pod: Pod
    rule: str
    """The feature that wants it."""
    bound: str
    terms: Terms


def evictions(
    sample: NodeSample,  # noqa: ARG001
    facts: NodeFacts,  # noqa: ARG001
    pods: Sequence[Pod],  # noqa: ARG001
    policy: Policy,  # noqa: ARG001
) -> tuple[Eviction, ...]:
    """The victims, the first one first. None yet: no eviction feature acts."""
    return ()
