"""``agent-config``, Slacktide's own: what holds for every node agent."""

from __future__ import annotations

from slacktide.schemas.message import Message

KEY = "agent-config"


class AgentPolicy(Message, frozen=True, kw_only=True):
    """With ``suspend`` every agent lifts its limits and evicts nobody. Records go on: decisions are still seen."""

    suspend: bool = False
    """Lift all limits and evict nobody, on every node. Decisions are still recorded."""
