"""Computes the knobs of a node's groups, except the best-effort CPU limit."""

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
    """Return the changes by drift, then by bursts. On a knob in both, the burst takes precedence."""
    return (*drift_settings(sample.drift, facts, pods, policy), *burst_settings(sample, facts, pods, policy))
