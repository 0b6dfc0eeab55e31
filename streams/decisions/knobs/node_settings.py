"""What knobs of a node's groups shall hold, beyond the limit of best-effort CPU."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.burst.node_burst import burst_settings
from slacktide.streams.decisions.knobs.node_knobs import drift_settings
from slacktide.streams.decisions.wanted_setting import WantedSetting

__all__ = ["WantedSetting", "settings"]


def settings(sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> tuple[WantedSetting, ...]:
    """What of the sample's drift and bursts shall change. Bursts last: a knob that both want is theirs."""
    return (*drift_settings(sample.drift, facts, pods, policy), *burst_settings(sample, facts, pods, policy))
