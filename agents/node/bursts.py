"""Remembers what containers' CPU bursts have left to spend. None bursts yet."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.agents.node.kernel import Reading
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import ContainerBurst


class Bursts:
    """The limiters of one boot's containers."""

    def state(
        self,
        reading: Reading,  # noqa: ARG002
        facts: NodeFacts,  # noqa: ARG002
        pods: Sequence[Pod],  # noqa: ARG002
        policy: Policy,  # noqa: ARG002
        now_ns: int,  # noqa: ARG002
    ) -> list[ContainerBurst]:
        """The containers whose quota may move."""
        return []
