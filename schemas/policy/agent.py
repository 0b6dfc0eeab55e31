"""``agent-config``, Slacktide's own: what holds for every node agent."""

from __future__ import annotations

from slacktide.schemas.message import Message

KEY = "agent-config"


class AgentPolicy(Message, frozen=True, kw_only=True):
    """With ``suspend`` every agent lifts its limits and evicts no pod. Decisions are still recorded."""

    suspend: bool = False
    """Lift all limits and evict no pod, on every node. Decisions are still recorded."""
