"""Typed rows and series that the history returns. Pure.

Times are UTC epoch milliseconds by Kafka's clock. A figure is None if unknown. ``queries.History`` returns these types.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from slacktide.streams.analysis.explain.evidence import Place, Severity
from slacktide.streams.analysis.explain.node import NodeExplanation
from slacktide.streams.records import Record

State = Literal["ok", "exhausted", "suspended", "guard", "frozen", "silent"]
STATES: tuple[State, ...] = ("ok", "exhausted", "suspended", "guard", "frozen", "silent")
"""The states from good to bad. A node has its worst state.

``exhausted``: batch CPU is 0 by the arithmetic. ``suspended``: by annotation, file or policy. ``guard``: the node's
guard decided last. ``frozen``: its figures were neither published nor covered for 15 s. ``silent``: no worker has
figures of it, or workers mark it stale.
"""
NONE = -1
"""An unknown value in a column."""
UNLIMITED = 1 << 40
"""No quota, in columns of limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node at one moment."""

    node: str
    at_ms: int
    """Start of the second or coarser span."""
    end_ms: int
    """The last millisecond of the point."""
    state: State
    severity: Severity
    why: str
    """Problems; "": none."""
    age_ms: int | None
    """Time since the figures were published or covered by a heartbeat."""
    capacity_cpu_milli: int | None
    capacity_mem_bytes: int | None
    used_cpu_milli: int | None
    used_mem_bytes: int | None
    ls_cpu_milli: int | None
    """The use of pods outside the best-effort cgroup."""
    be_cpu_milli: int | None
    """The use of pods in the best-effort cgroup."""
    system_cpu_milli: int | None
    """Used outside of pods."""
    be_mem_bytes: int | None
    sold_cpu_milli: int | None
    """Allocatable batch-cpu."""
    sold_mem_bytes: int | None
    requested_cpu_milli: int | None
    """Requested batch-cpu."""
    requested_mem_bytes: int | None
    ceiling_cpu_milli: int | None
    """cpuSuppressThresholdPercent of the capacity; None: suppression is disabled."""
    limit_cpu_milli: int | None
    """The limit of best-effort pods in force, by quota or CPU set; UNLIMITED: none."""
    ls_stall_permille: int | None
    """Waiting time of latency-sensitive pods per running time: the policy's pressure."""
    cpu_some_pct: float | None
    """PSI of the node over 10 s."""
    gained_cpu_milli: int | None
    """Best-effort use beyond the use that native requests would have admitted (docs/savings.md, the likely figure)."""
    decided_by: Literal["", "stream", "guard"]
    """The origin of the last outcome of the limit."""
    decided_ms: int | None
    """Time from that sample to the confirmed limit."""
    evictions: int
    """Pods evicted within the second or span."""
    policy_version: str
    boot_id: str
    """The boot of the newest sample."""
    places: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    """``sample``, ``allocatable``, ``metric``, ``command``, ``outcome`` and ``score``: topic, partition and offset of
    the figures' records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem at one moment."""

    severity: Severity
    name: str
    """silent, frozen, guard, suspended, exhausted, evictions, lag, dead-letters, missing, or ``node`` for others."""
    node: str
    """"": the cluster."""
    text: str
    place: tuple[str, int, int] | None = None
    """Topic, partition and offset of a record that shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A worker's lag in one partition, by its last tick."""

    worker: str
    topic: str
    partition: int
    position: int
    end: int | None
    at_ms: int

    @property
    def lag(self) -> int | None:
        """Return the lag in records; None: the end offset is unknown."""
        return None if self.end is None else max(0, self.end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One node over time, in columns of equal length."""

    node: str
    step_ms: int
    """The length of a point: a multiple of 1 s."""
    at_ms: array[int]
    """Start of each point; points that were not recorded are omitted."""
    columns: Mapping[str, array[int]]
    """The columns by name. NONE: unknown.

    Levels have three: ``NAME`` (the last of the point), ``NAME.min`` and ``NAME.max``. They are ls_cpu_milli,
    be_cpu_milli, system_cpu_milli, used_cpu_milli, used_mem_bytes, be_mem_bytes, sold_cpu_milli, sold_mem_bytes,
    requested_cpu_milli, requested_mem_bytes, limit_cpu_milli (UNLIMITED: none), cpu_some, mem_some, mem_full, io_some,
    io_full (PSI, hundredths of a percent), ls_stall_permille, be_throttled_permille, gained_cpu_milli, age_ms,
    decided_ms. Counts within the point: cuts, raises, bursts, evictions, skipped, guarded (outcomes by the guard).
    Last of the point: capacity_cpu_milli, capacity_mem_bytes, ceiling_cpu_milli, and offsets: sample_offset,
    metric_offset, allocatable_offset, command_offset, outcome_offset, score_offset. Worst of the point: state (index of
    STATES).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Explains a node's figures at one moment: kept records and their explanation.

    ``slacktide.deploy.cli.explain.node_text.node_text(explanation)`` is the text of ``slacktide explain node``.
    """

    explanation: NodeExplanation
    """Each step has its position and record; figures have their arithmetic."""
    records: Sequence[Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """An event of a pod."""

    at_ms: int
    kind: str
    """placed, missed, evicted, refused, throttled, lifted, frozen, thawed, ended, killed, stuck, descheduled."""
    namespace: str
    name: str
    uid: str
    node: str
    """"": the record has none."""
    text: str
    """Threshold and observed value, or the reason of a placement or refusal."""
    place: Place
    body: Any
    """The record's message: NodeOutcome, PodPlacement or MissedPod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A gap of the history."""

    from_ms: int
    to_ms: int
    what: str
    """A topic and partition, or "all"."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The extent of the history."""

    oldest_ms: int | None
    """None: no record yet."""
    newest_ms: int | None
    steps_ms: Mapping[int, int]
    """The oldest moment by resolution in milliseconds (1,000, 10,000, 60,000)."""
    gaps: Sequence[Gap]
    size_bytes: int
    size_bytes_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRate:
    """Recent records of a topic."""

    topic: str
    records: int
    """Records in the last recorded minute."""
    newest_offset: int
    """Sum over partitions."""
