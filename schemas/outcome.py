"""The outcome of a command. Topic slacktide.node.outcome.v1, key: node. Agent to all."""

from __future__ import annotations

from typing import Literal

from slacktide.schemas.bounds import Count, KnobValue, Name, Revision, TimeMs
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Message, Terms
from slacktide.schemas.sample import Limits

Result = Literal["applied", "unchanged", "refused", "failed", "dry-run", "gap"]
Origin = Literal["stream", "guard", "agent"]


class PodName(Message, frozen=True, kw_only=True):
    """The pod of an act, for readers."""

    namespace: Name
    name: Name


class KnobChange(Message, frozen=True, kw_only=True):
    """A knob's value before and after an act. None: unlimited, or unreadable."""

    knob: Knob
    before: KnobValue | None
    after: KnobValue | None


class Spent(Message, frozen=True, kw_only=True):
    """Eviction credit that this boot of the node has spent, and who granted it."""

    evictions: Count
    """Since the agent's start."""
    epoch: Count = 0
    """Epoch of the governor that granted it. The governor itself takes epochs from the credit topic alone."""


class NodeOutcome(Message, frozen=True, kw_only=True):
    """One act, or one counted refusal, on a node.

    ``gap`` stands for ``count`` outcomes that a full spool could not hold.
    Origin ``agent``: the agent's own acts (reconcile at start, restore at exit, a cut ahead of the answer).
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
    """Monotonic time from taking the sample to reading back the act."""
    before: Limits | None = None
    after: Limits | None = None
    """As read back from the kernel."""
    bound: str = ""
    terms: Terms = {}
    count: Count = 1
    pod: PodName | None = None
    """Present for an act on a pod, whose uid is in ``target``: ``pod/<uid>``."""
    knob: KnobChange | None = None
    """Present for a setting, whose cgroup is the ``target``."""
    spent: Spent | None = None
    """Present for an eviction, done or refused."""

    @property
    def about_limit(self) -> bool:
        """Whether it is about the best-effort limit, not about a knob or a pod."""
        return self.knob is None and self.pod is None
