"""What knobs of a node's groups shall hold, beyond the limit of best-effort CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import Knob, NodeSample


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSetting:
    """What one knob of one group shall hold, and why."""

    group: str
    """``pod/<uid>``, ``pod/<uid>/<container name>`` or ``tier/besteffort``."""
    knob: Knob
    value: int | None
    """None: unlimited."""
    rule: str
    bound: str
    terms: Terms


def settings(
    sample: NodeSample,  # noqa: ARG001
    facts: NodeFacts,  # noqa: ARG001
    pods: Sequence[Pod],  # noqa: ARG001
    policy: Policy,  # noqa: ARG001
) -> tuple[WantedSetting, ...]:
    """What of the sample's drift and bursts shall change. None yet: no feature sets any."""
    return ()
