"""The commands that answer samples. Topic slacktide.node.command.v1. Streams to agent.

A command that changes something, or has the reason why nothing can be decided, has its node as the key. Most samples
change nothing: one record with the key ``#keep`` lists those that a worker answered together. Every reader takes it as
one command for each of them.
"""

import hashlib
from functools import lru_cache
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta

from slacktide.schemas.bounds import Count, KnobValue, Name, Revision, TimeMs
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Message, Terms
from slacktide.schemas.proof import Verdict
from slacktide.schemas.sample import Limits

Answer = Literal["set", "keep", "skipped"]


class Hold(Message, frozen=True, kw_only=True):
    """A limit to set, and why."""

    id: str
    rule: str
    target: str
    limits: Limits
    bound: str
    """The step of the rule that determined the result, such as ``stepped`` or ``floored``."""
    terms: Terms = {}


class Setting(Message, frozen=True, kw_only=True):
    """A value to set on one knob of one cgroup, and why."""

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
    """A pod to evict, and why. The node's eviction credit decides whether it is evicted now."""

    id: str
    rule: str
    """The feature that evicts it: BEMemoryEvict, BECPUEvict, ..."""
    uid: Name
    namespace: Name
    name: Name
    bound: str
    terms: Terms = {}


class Origin(Message, frozen=True, kw_only=True):
    """Where the sample is in Kafka: evidence, never order."""

    topic: str
    partition: Count
    offset: Count


class NodeCommand(Message, frozen=True, kw_only=True):
    """What the node that sent the sample (boot_id, seq) must apply."""

    id: str
    node: Name
    boot_id: Revision
    seq: Count
    observed_ms: TimeMs
    """Event time of the sample. This is 0 and the revisions are empty if it keeps: the sample has them."""
    policy_version: Revision
    facts_revision: Revision
    pods_revision: Revision
    answer: Answer
    """set: apply the fields below; keep: keep the limits in force; skipped: no decision is possible."""
    reason: str = ""
    """Why it was skipped."""
    hold: list[Hold] = []
    """Empty if the best-effort limit stays as in the sample."""
    evict: list[Evict] = []
    """In order of eviction."""
    settings: list[Setting] = []
    decided_ms: TimeMs = 0
    worker: str = ""
    sample: Origin | None = None
    proof: Verdict = ""
    """Result of checking the sample's node proof. Absent if the policy does not require proofs."""


KEEP: Final = "slacktide.node.keep.v1"
"""The event's type, and the schema's name."""
KEEP_KEY: Final = "#keep"
"""Kubernetes allows no ``#`` in a node's name."""
KEPT_MAX: Final = 1_000
"""Most answers in one record, to stay below the broker's 1 MiB with the longest names."""
Answered: TypeAlias = tuple[Name, Revision, Count]
"""Node, boot_id and seq of a sample."""


class NodesKept(Message, frozen=True, kw_only=True):
    """Many answers ``keep`` in one: the nodes that sent these samples keep the limits in force."""

    policy_version: Revision
    reason: str = ""
    decided_ms: TimeMs = 0
    worker: str = ""
    sample: Origin | None = None
    """Where the last of the samples is in Kafka."""
    proof: Verdict = ""
    """Result of checking the proof of each sample. Absent if the policy does not require proofs."""
    kept: Annotated[list[Answered], Meta(max_length=KEPT_MAX)]
    """Node, boot_id and seq of each sample."""


def kept_command(kept: NodesKept, answered: Answered) -> NodeCommand:
    """Return the command to one of the nodes."""
    node, boot_id, seq = answered
    version = kept.policy_version
    return NodeCommand(
        id=command_id(node, boot_id, seq, "answer", node, version),
        node=node,
        boot_id=boot_id,
        seq=seq,
        observed_ms=0,
        policy_version=version,
        facts_revision="",
        pods_revision="",
        answer="keep",
        reason=kept.reason,
        decided_ms=kept.decided_ms,
        worker=kept.worker,
        proof=kept.proof,
    )


def command_id(node: str, boot_id: str, seq: int, rule: str, target: str, policy_version: str) -> str:
    """The id of a decision, the same wherever and however often it is made.

    It is a hash of all but the sequence number, then that number, so that one hash serves all samples of a boot.

    >>> command_id("node-1", "000000000001-a", 7, "answer", "node-1", "p")
    '2dab9525f849-0000000007'
    """
    return f"{_of_boot(node, boot_id, rule, target, policy_version)}-{seq:010d}"


@lru_cache(maxsize=4_096)
def _of_boot(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:12]
