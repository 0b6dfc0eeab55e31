"""The answer to one sample. Topic slacktide.node.command.v1, key: node. Streams to agent."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Literal

from slacktide.schemas.bounds import Count, KnobValue, Name, Revision, TimeMs
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Message, Terms
from slacktide.schemas.proof import Verdict
from slacktide.schemas.sample import Limits

Answer = Literal["set", "keep", "skipped"]


class Hold(Message, frozen=True, kw_only=True):
    """A limit that shall hold, and why."""

    id: str
    rule: str
    target: str
    limits: Limits
    bound: str
    """The step of the rule that fixed the result, e.g. ``stepped`` or ``floored``."""
    terms: Terms = {}


class Setting(Message, frozen=True, kw_only=True):
    """What one knob of one group shall hold, and why."""

    id: str
    rule: str
    group: str
    """As in ``Drift``."""
    knob: Knob
    value: KnobValue | None
    """None: unlimited."""
    bound: str
    terms: Terms = {}


class Evict(Message, frozen=True, kw_only=True):
    """A pod that shall go, and why. The node's eviction credit decides whether it may go now."""

    id: str
    rule: str
    """The feature that wants it: BEMemoryEvict, BECPUEvict, ..."""
    uid: Name
    namespace: Name
    name: Name
    bound: str
    terms: Terms = {}


class Origin(Message, frozen=True, kw_only=True):
    """Where the sample stood in the log: evidence, never order."""

    topic: str
    partition: Count
    offset: Count


class NodeCommand(Message, frozen=True, kw_only=True):
    """What shall hold on the node that sent the sample (boot_id, seq)."""

    id: str
    node: Name
    boot_id: Revision
    seq: Count
    observed_ms: TimeMs
    """Event time of the sample that is answered."""
    policy_version: Revision
    facts_revision: Revision
    pods_revision: Revision
    answer: Answer
    """set: what is below; keep: what the sample has in force; skipped: cannot decide."""
    reason: str = ""
    """Why it was skipped."""
    hold: list[Hold] = []
    """Empty where the best-effort limit stays as the sample has it."""
    evict: list[Evict] = []
    """The first victim first."""
    settings: list[Setting] = []
    decided_ms: TimeMs = 0
    worker: str = ""
    sample: Origin | None = None
    proof: Verdict = ""
    """What the check of the sample's node-bound proof found. Absent where the policy does not ask for proofs."""


def command_id(node: str, boot_id: str, seq: int, rule: str, target: str, policy_version: str) -> str:
    """Return one id for the same decision, made anywhere and any number of times.

    A hash of all but the sequence number, then that number: a reader of many samples of a boot hashes once.

    >>> command_id("node-1", "000000000001-a", 7, "answer", "node-1", "p")
    '2dab9525f849-0000000007'
    """
    return f"{_of_boot(node, boot_id, rule, target, policy_version)}-{seq:010d}"


@lru_cache(maxsize=4_096)
def _of_boot(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:12]
