"""What came of a command. Topic slacktide.node.outcome.v1, key: node. Agent to all."""

from __future__ import annotations

from typing import Literal

from slacktide.schemas.message import Count, Message, Terms
from slacktide.schemas.sample import Limits

Result = Literal["applied", "unchanged", "refused", "failed", "dry-run", "gap"]
Origin = Literal["stream", "guard", "agent"]


class NodeOutcome(Message, frozen=True, kw_only=True):
    """One act, or one counted refusal, on a node.

    ``gap`` stands for ``count`` outcomes that a full spool could not hold.
    Origin ``agent``: the agent's own housekeeping (reconcile at start, restore at exit).
    """

    node: str
    boot_id: str
    seq: Count
    command_id: str
    rule: str
    target: str
    origin: Origin
    result: Result
    reason: str = ""
    policy_version: str
    observed_ms: Count
    """Event time of the sample that led to it."""
    acted_ms: Count
    """Event time of the act."""
    age_ms: Count
    """Monotonic time from the sample being taken to the act being read back."""
    before: Limits | None = None
    after: Limits | None = None
    """As read back from the kernel."""
    bound: str = ""
    terms: Terms = {}
    count: Count = 1
