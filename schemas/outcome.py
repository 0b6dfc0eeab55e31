"""What came of a command. Topic slacktide.node.outcome.v1, key: node. Agent to all."""

from __future__ import annotations

from typing import Literal

from slacktide.schemas.bounds import Count, KnobValue, Name, Revision, TimeMs
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Message, Terms
from slacktide.schemas.sample import Limits

Result = Literal["applied", "unchanged", "refused", "failed", "dry-run", "gap"]
Origin = Literal["stream", "guard", "agent"]


class PodName(Message, frozen=True, kw_only=True):
    """Whom an act was about, for readers."""

    namespace: Name
    name: Name


class KnobChange(Message, frozen=True, kw_only=True):
    """What one knob held before an act and after it. None: unlimited, or could not be read."""

    knob: Knob
    before: KnobValue | None
    after: KnobValue | None


class Spent(Message, frozen=True, kw_only=True):
    """Eviction credit: how much this boot of the node has spent, and by whose grant."""

    evictions: Count
    """Since the agent's start."""
    epoch: Count = 0
    """Of the governor that granted it. The governor does not go by it: epochs come from the credit topic alone."""


class NodeOutcome(Message, frozen=True, kw_only=True):
    """One act, or one counted refusal, on a node.

    ``gap`` stands for ``count`` outcomes that a full spool could not hold.
    Origin ``agent``: the agent's own housekeeping (reconcile at start, restore at exit).
    """

    node: Name
    boot_id: Revision
    seq: Count
    command_id: str
    rule: str
    target: str
    origin: Origin
    result: Result
    reason: str = ""
    policy_version: Revision
    observed_ms: TimeMs
    """Event time of the sample that led to it."""
    acted_ms: TimeMs
    """Event time of the act."""
    age_ms: TimeMs
    """Monotonic time from the sample being taken to the act being read back."""
    before: Limits | None = None
    after: Limits | None = None
    """As read back from the kernel."""
    bound: str = ""
    terms: Terms = {}
    count: Count = 1
    pod: PodName | None = None
    """Of an act on a pod; its uid is in ``target``: ``pod/<uid>``."""
    knob: KnobChange | None = None
    """Of a setting; its group is the ``target``."""
    spent: Spent | None = None
    """Of an eviction, done or wanted."""

    @property
    def about_limit(self) -> bool:
        """Whether it is about the best-effort limit, and neither about a knob nor about a pod."""
        return self.knob is None and self.pod is None
