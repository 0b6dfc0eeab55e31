"""What the pages read: rows and series of the history, typed. Pure.

Times are UTC epoch milliseconds by the log's clock. A figure is None where the log does not have it, never a guess.
``queries.History`` answers.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from slacktide.schemas.policy import Policy
from slacktide.streams.explain.evidence import Place, Severity
from slacktide.streams.explain.node import NodeExplanation
from slacktide.streams.records import Record

State = Literal["ok", "exhausted", "suspended", "guard", "frozen", "silent"]
STATES: tuple[State, ...] = ("ok", "exhausted", "suspended", "guard", "frozen", "silent")
"""From good to bad; the worst that holds is a node's state.

``exhausted``: the arithmetic leaves no batch CPU. ``suspended``: by annotation, file or policy. ``guard``: the node's
guard decided last. ``frozen``: its figures were neither published nor covered for 15 s. ``silent``: no worker has
figures of it, or workers call it stale.
"""
NONE = -1
"""In columns: not known."""
UNLIMITED = 1 << 40
"""In columns of limits: no quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node at one moment."""

    node: str
    at_ms: int
    """Begin of the second, or of the span of a coarser resolution, that the figures are of."""
    end_ms: int
    """Its last millisecond: the figures are of records until then."""
    state: State
    severity: Severity
    why: str
    """What is wrong, in words; "": nothing."""
    age_ms: int | None
    """Since its figures were published, or covered by a heartbeat."""
    capacity_cpu_milli: int | None
    capacity_mem_bytes: int | None
    used_cpu_milli: int | None
    used_mem_bytes: int | None
    ls_cpu_milli: int | None
    """Of pods outside the best-effort group."""
    be_cpu_milli: int | None
    """Of pods within it."""
    system_cpu_milli: int | None
    """That no pod accounts for."""
    be_mem_bytes: int | None
    sold_cpu_milli: int | None
    """batch-cpu as published."""
    sold_mem_bytes: int | None
    requested_cpu_milli: int | None
    """batch-cpu that pods there asked for."""
    requested_mem_bytes: int | None
    ceiling_cpu_milli: int | None
    """cpuSuppressThresholdPercent of the capacity; None: suppression is off."""
    limit_cpu_milli: int | None
    """In force for best-effort pods, by quota; UNLIMITED: none."""
    ls_stall_permille: int | None
    """Time that latency-sensitive pods waited for a CPU, per time that they ran: the policy's pressure."""
    cpu_some_pct: float | None
    """PSI of the node over 10 s."""
    slack_won_cpu_milli: int | None
    """Best-effort use beyond what native requests would have admitted (docs/savings.md, the likely figure)."""
    decided_by: Literal["", "stream", "guard"]
    """Of the last outcome about the limit."""
    decided_ms: int | None
    """From that sample being taken to the limit being read back."""
    evictions: int
    """Pods evicted within the second or span."""
    policy_version: str
    boot_id: str
    """Of the newest sample."""
    places: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    """``sample``, ``allocatable``, ``metric``, ``command``, ``outcome`` and ``score``: topic, partition and offset of
    the record that the figures are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong at one moment, the worst first."""

    severity: Severity
    name: str
    """silent, frozen, guard, suspended, exhausted, evictions, lag, dead-letters, missing, or ``node`` for another."""
    node: str
    """"": of the cluster."""
    text: str
    place: tuple[str, int, int] | None = None
    """Topic, partition and offset of a record that shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a worker was behind in one partition, by its last tick."""

    worker: str
    topic: str
    partition: int
    position: int
    end: int | None
    at_ms: int

    @property
    def lag(self) -> int | None:
        """Records; None: the end is not known."""
        return None if self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One node over time, in columns of equal length."""

    node: str
    step_ms: int
    """Of one point: a multiple of 1 s."""
    at_ms: array[int]
    """Begin of each point; points without a record of the follower are left out."""
    columns: Mapping[str, array[int]]
    """By name. NONE: not known.

    Levels have three: ``NAME`` (the last of the point), ``NAME.min`` and ``NAME.max``. They are ls_cpu_milli,
    be_cpu_milli, system_cpu_milli, used_cpu_milli, used_mem_bytes, be_mem_bytes, sold_cpu_milli, sold_mem_bytes,
    requested_cpu_milli, requested_mem_bytes, limit_cpu_milli (UNLIMITED: none), cpu_some, mem_some, mem_full, io_some,
    io_full (PSI, hundredths of a percent), ls_stall_permille, be_throttled_permille, slack_won_cpu_milli, age_ms,
    decided_ms. Counts within the point: cuts, raises, bursts, evictions, skipped, guarded (outcomes by the guard).
    Last of the point: capacity_cpu_milli, capacity_mem_bytes, ceiling_cpu_milli, and offsets: sample_offset,
    metric_offset, allocatable_offset, command_offset, outcome_offset, score_offset. Worst of the point: state (index of
    STATES).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Why a node's figures are what they are at one moment: the records that were kept, and what explain makes of them.

    ``slacktide.deploy.cli.explain.node_text.node_text(explanation)`` is the text of ``slacktide explain node``.
    """

    node: str
    at_ms: int
    explanation: NodeExplanation
    """Each step has its place and its record; figures have their arithmetic."""
    records: Sequence[Record]
    """As they stood in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """One thing that happened to a pod."""

    at_ms: int
    kind: str
    """placed, missed, evicted, refused, throttled, lifted, frozen, thawed, ended, killed, stuck, descheduled."""
    namespace: str
    name: str
    uid: str
    node: str
    """"": the record names none."""
    text: str
    """Threshold against observed value, or why it was placed or refused."""
    place: Place
    body: Any
    """The record's message: NodeOutcome, PodPlacement or MissedPod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A while of which the history misses something."""

    from_ms: int
    to_ms: int
    what: str
    """A topic and partition, or "all"."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How far the history goes."""

    oldest_ms: int | None
    """None: nothing is recorded yet."""
    newest_ms: int | None
    steps_ms: Mapping[int, int]
    """By resolution in milliseconds (1,000, 10,000, 60,000) the oldest moment that is kept of it."""
    gaps: Sequence[Gap]
    size_bytes: int
    size_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAt:
    """The policy in force at a moment."""

    policy: Policy
    place: Place
    refused: str
    """Why the newest record of the topic is not in force; "": it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRate:
    """What came of a topic lately."""

    topic: str
    records: int
    """Within the last recorded minute."""
    newest_offset: int
    """Sum over partitions."""
