"""What knobs of a node's groups shall hold, beyond the limit of best-effort CPU."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.wanted_setting import WantedSetting

__all__ = ["WantedSetting", "settings"]


def settings(
    sample: NodeSample,  # noqa: ARG001
    facts: NodeFacts,  # noqa: ARG001
    pods: Sequence[Pod],  # noqa: ARG001
    policy: Policy,  # noqa: ARG001
) -> tuple[WantedSetting, ...]:
    """What of the sample's drift and bursts shall change. None yet: no feature sets any."""
    return ()
