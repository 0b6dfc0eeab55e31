"""``admission-config``, Slacktide's own: which pods the webhook refuses beyond the reference."""

from __future__ import annotations

from slacktide.schemas.message import Message

KEY = "admission-config"


class AdmissionPolicy(Message, frozen=True, kw_only=True):
    """With ``strict_qos`` fewer QoS classes and priority classes go together than with the reference."""

    strict_qos: bool = False
    """LSE only with koord-prod; LS not with koord-batch or koord-free; of LSE and LSR, CPU limits equal requests, and
    CPUs can be bound."""
