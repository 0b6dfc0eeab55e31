"""What one knob of a group shall hold: what every rule about knobs comes to."""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSetting:
    """What one knob of one group shall hold, and why."""

    group: str
    """``pod/<uid>``, ``pod/<uid>/<container name>`` or a tier's, such as ``tier/besteffort``."""
    knob: Knob
    value: int | None
    """None: unlimited."""
    rule: str
    bound: str
    terms: Terms
