"""The result of every rule about knobs."""

from __future__ import annotations

from dataclasses import dataclass

from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSetting:
    """The value to set for one knob of one group, and its reason."""

    group: str
    """``pod/<uid>``, ``pod/<uid>/<container name>`` or a tier such as ``tier/besteffort``."""
    knob: Knob
    value: int | None
    """None: unlimited."""
    rule: str
    bound: str
    terms: Terms
