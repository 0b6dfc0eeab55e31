"""The outcome of a command. Topic slacktide.node.outcome.v1, key: node. Agent to all."""

from typing import Literal

from slacktide.schemas.bounds import Amount, Count, KnobValue, Name, Revision, TimeMs
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


class Reclaimed(Message, frozen=True, kw_only=True):
    """Memory that the agent reclaimed from a best-effort pod since the pod's last such outcome.

    Stalls are per mille of the time between two steps, about a second, in which a process waited (PSI).
    """

    pod: PodName
    asked_bytes: Amount
    """What the kernel was asked for."""
    freed_bytes: Amount
    """By which the pod's memory fell. Older kernels reclaim more than they are asked for."""
    swapped_bytes: Amount = 0
    """What of it went to swap."""
    writes: Count = 0
    """Writes to ``memory.reclaim``."""
    took_us: Count = 0
    """Monotonic time of all writes together."""
    ls_mem_before_permille: Count = 0
    """Stalls of latency-sensitive pods for memory, before the first of these writes."""
    ls_mem_after_permille: Count = 0
    """The same before the last step of these, so after the earlier ones."""
    io_full_before_permille: Count = 0
    """Time in which all processes of the node waited for IO, before the first of these writes."""
    io_full_after_permille: Count = 0
    """The same before the last step of these."""


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
    reclaimed: Reclaimed | None = None
    """Present for memory reclaimed from a pod. ``pod`` is then None: it neither ends nor stops."""

    @property
    def about_limit(self) -> bool:
        """Whether it is about the best-effort limit, not about a knob or a pod."""
        return self.knob is None and self.pod is None and self.reclaimed is None

    @property
    def concerns(self) -> PodName | None:
        """The pod of an act of any kind; None: none."""
        return self.pod if self.reclaimed is None else self.reclaimed.pod
