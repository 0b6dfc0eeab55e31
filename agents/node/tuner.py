"""Sets knobs of groups, and sees which hold something else than is wanted. None is set yet."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.agents.node.protocol import Taken
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.outcome import Origin
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import Drift
from slacktide.streams.decisions.node_settings import WantedSetting


class Tuner:
    """The one place that sets knobs beyond the best-effort limit."""

    def drift(self, facts: NodeFacts, pods: Sequence[Pod], policy: Policy, now_ns: int) -> list[Drift]:  # noqa: ARG002
        """The knobs that hold something else than is wanted of them."""
        return []

    def carry_out(self, settings: Sequence[WantedSetting], taken: Taken, origin: Origin, reason: str) -> None:
        """Set them, and say what came of it."""
