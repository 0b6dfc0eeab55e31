"""Records of the log in, minutes of the history out. Pure: the log's time is the only one.

A second is closed when the log has passed it. Each node then has a row, with what came of it within the second and what
held at its end. Nothing is filled in: a node without a sample has no use in that second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from slacktide.deploy.console.history.latest import LATEST, Latest
from slacktide.deploy.console.history.node_figures import NodeFigures
from slacktide.deploy.console.history.points import POINTS, Block, empty
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.heartbeat import RESERVED, is_heartbeat
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.knob import uid_of
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.missed_pod import MissedPod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.policy import InForce
from slacktide.schemas.proof import PROVEN
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    DEAD_LETTER,
    DESCHEDULING,
    INVENTORY,
    METRIC,
    MISSED_POD,
    OUTCOME,
    PLACEMENT,
    POLICY,
    SAMPLES,
    SCORE,
    SHADOW_ALLOCATABLE,
    TICK,
)
from slacktide.schemas.unreadable import UnreadableBatch
from slacktide.streams.decisions.audited import ENDS, HOLDS
from slacktide.streams.decisions.coverage import Coverage
from slacktide.streams.explain.evidence import Logged, place_of
from slacktide.streams.records import Place, Record, text_of
from slacktide.streams.rows import SAMPLE_NAMES, Rows

STATE = (POLICY, INVENTORY, METRIC, ALLOCATABLE, SCORE, SHADOW_ALLOCATABLE)
"""Compacted topics: read from their beginning after each start."""
FACTS = (*SAMPLES, COMMAND, OUTCOME, PLACEMENT, MISSED_POD, DESCHEDULING, DEAD_LETTER, TICK)
"""Topics read from where the last stored minute ended."""
TOPICS = (*STATE, *FACTS, *LATEST)
KEEP_MS_MIN, KEEP_MS_PER_NODE = 1_000, 300
"""One record in each such span is kept of each topic of a node: of few nodes all, of 1,000 one in 5 min."""
KEYFRAME_MS = 3_600_000
"""A keyframe is kept when its facts or pods changed, and so often although they did not."""
TICK_MS = 10_000
"""One tick of each worker is kept in each such span."""
TEXTS_MAX = 1 << 16
UNTOLD = "(one of too many reasons)"


@dataclass(frozen=True, slots=True)
class Entry:
    """One record that is kept by itself."""

    record: Record
    names: tuple[str, ...] = ()
    """Pods that it is about, as NAMESPACE/NAME and uid."""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Minute:
    """What is to be stored at once."""

    start_s: int
    """UTC epoch, a multiple of 60."""
    blocks: Mapping[str, Block]
    """By node."""
    kept: Mapping[str, list[Record]]
    """By node."""
    entries: list[Entry]
    rates: Mapping[str, int]
    """By topic, how many records came."""
    offsets: Mapping[Place, int]
    """Of each partition that something came of, the next offset; all before it is in this minute or an earlier one."""
    firsts: Mapping[Place, int]
    """And the first that was read since the start."""
    texts: list[str]
    """New ones, in the order of their numbers."""


@dataclass(slots=True)
class Recorder:
    """Follows all nodes.

    Args:
        begin_s: the first second that is recorded, UTC epoch; what is older fills in what holds.
        texts: numbers of those that are stored already.
        first: nothing is stored yet, so what holds at the beginning is kept, too.

    """

    begin_s: int
    texts: dict[str, int] = field(default_factory=dict)
    first: bool = False
    unreadable: int = 0
    """Records that could not be decoded; workers make dead letters of them."""
    minutes: list[Minute] = field(default_factory=list)
    """Full ones; whoever stores them takes them out."""
    nodes: dict[str, NodeFigures] = field(default_factory=dict)
    policies: InForce = field(default_factory=InForce)
    latest: Latest = field(default_factory=Latest)
    """Of Jobs and the queue."""
    second_s: int = 0
    """The one that is being filled."""
    entries: list[Entry] = field(default_factory=list)
    """Of the minute that is being filled."""
    rates: dict[str, int] = field(default_factory=dict)
    """Of the minute that is being filled."""
    _rows: Rows = field(default_factory=Rows)
    _coverage: Coverage = field(default_factory=Coverage)
    _offsets: dict[Place, int] = field(default_factory=dict)
    _firsts: dict[Place, int] = field(default_factory=dict)
    _stored_texts: int = 0
    _ticks: dict[bytes | None, int] = field(default_factory=dict)
    _policy_record: Record | None = None
    _filled_in: bool = False

    def __post_init__(self) -> None:
        self.second_s = self.begin_s
        self._stored_texts = len(self.texts)

    def take(self, record: Record, *, known: bool = False) -> None:
        """The next record by the log's time.

        Args:
            record: of one of ``TOPICS``.
            known: it only fills in what holds: it is in a stored minute already, or time stands still behind a gap.

        """
        new = not known
        self._filled_in |= known
        if new:
            self._begin_anew()
            self.advance(record.timestamp_ms)
            self.rates[record.topic] = self.rates.get(record.topic, 0) + 1
        place = record.place
        self._firsts.setdefault(place, record.offset)
        self._offsets[place] = record.offset + 1
        if isinstance(record.value, UnreadableBatch):
            self.unreadable += 1
            return
        try:
            if is_heartbeat(record.key):
                self._beat(record)
            elif record.topic in SAMPLE_NAMES:
                self._sample(record, new=new)
            else:
                _TAKES[record.topic](self, record, new)
        except BadMessageError:
            self.unreadable += 1

    def advance(self, to_ms: int) -> None:
        """The log has passed all before this time: close the seconds that are over."""
        while self.second_s < to_ms // 1_000:
            self._begin_anew()
            self._close()

    def _begin_anew(self) -> None:
        """What was read to fill in what holds is of no second that is recorded."""
        if self._filled_in:
            self._filled_in = False
            for node in self.nodes.values():
                node.forget_second()

    def jump(self, to_s: int) -> None:
        """Go on at a later second; those between are missing, and stay so."""
        if to_s > self.second_s:
            if to_s // POINTS != self.second_s // POINTS:
                self._full()
            self.second_s = to_s

    def blocks(self, start_s: int) -> Mapping[str, Block]:
        """By node the points of a minute that is not stored yet; empty: it is none."""
        if start_s == self.second_s // POINTS * POINTS:
            return {name: node.block for name, node in list(self.nodes.items())}
        return next((one.blocks for one in list(self.minutes) if one.start_s == start_s), {})

    def kept_of(self, node: str) -> list[Record]:
        """Records of a node that are kept and not stored yet."""
        older = [record for one in list(self.minutes) for record in one.kept.get(node, ())]
        return older + (list(self.nodes[node].kept) if node in self.nodes else [])

    def unstored(self) -> list[Entry]:
        """Records that are kept by themselves and not stored yet."""
        return [entry for one in list(self.minutes) for entry in one.entries] + list(self.entries)

    def _keep_what_holds(self) -> None:
        self.first = False
        for node in self.nodes.values():
            node.keep_what_holds()
        if self._policy_record is not None:
            self.entries.append(Entry(self._policy_record))

    def _close(self) -> None:
        if self.first:
            self._keep_what_holds()
        policy = self.policies.policy if self.policies.policy.version else None
        slot, now_ms = self.second_s % POINTS, (self.second_s + 1) * 1_000
        for node in self.nodes.values():
            for column, value in zip(node.block, node.row(now_ms, self._number, policy), strict=True):
                column[slot] = value
        self.second_s += 1
        if slot == POINTS - 1:
            self._full(self.second_s - POINTS)

    def _full(self, start_s: int | None = None) -> None:
        start_s = self.second_s // POINTS * POINTS if start_s is None else start_s
        texts = list(self.texts)[self._stored_texts :]
        self._stored_texts += len(texts)
        self.minutes.append(
            Minute(
                start_s=start_s,
                blocks={name: node.block for name, node in self.nodes.items() if any(node.block[0])},
                kept={name: node.kept for name, node in self.nodes.items() if node.kept},
                entries=self.entries,
                rates=self.rates,
                offsets=dict(self._offsets),
                firsts=self._firsts,
                texts=texts,
            )
        )
        self.entries, self.rates = [], {}
        self.nodes = {name: node for name, node in self.nodes.items() if not node.gone(self.second_s * 1_000)}
        for node in self.nodes.values():
            node.block, node.kept = empty(1), []

    def _number(self, text: str) -> int:
        number = self.texts.get(text)
        if number is None:
            text = text if len(self.texts) < TEXTS_MAX else UNTOLD
            number = self.texts.setdefault(text, len(self.texts))
        return number

    @property
    def _span_ms(self) -> int:
        return max(KEEP_MS_MIN, KEEP_MS_PER_NODE * len(self.nodes))

    def _node(self, record: Record) -> NodeFigures:
        name = text_of(record.key or b"")
        if not name or name.startswith(RESERVED):
            raise BadMessageError(record.topic, "the key names no node")
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = NodeFigures(name)
        node.latest[record.topic] = record
        return node

    def _beat(self, record: Record) -> None:
        covered = self._coverage.receive(record, record.timestamp_ms / 1_000)
        if record.topic == METRIC.name:
            for name in covered:
                if name in self.nodes:
                    self.nodes[name].covered_ms = record.timestamp_ms

    def _sample(self, record: Record, *, new: bool) -> None:
        body = self._rows.sample(record)
        if body.node != text_of(record.key or b""):
            return
        node = self._node(record)
        before = node.keyframe
        node.take_sample(record, body)
        if node.keyframe is node.sample:
            node.keyframe_record = record
        if new and node.keyframe is node.sample:
            kept_ms = 0 if before is None else before.place.logged_ms
            revisions = body.facts_revision, body.pods_revision
            same = before is not None and revisions == (before.body.facts_revision, before.body.pods_revision)
            again = kept_ms // KEYFRAME_MS != record.timestamp_ms // KEYFRAME_MS
            if not same or again:
                node.kept.append(record)

    def _inventory(self, record: Record, new: bool) -> None:  # noqa: FBT001 - one of a table of functions
        if record.value is None:
            self.nodes.pop(text_of(record.key or b""), None)
            return
        body = decode(record.value, NodeInventory)
        node = self._node(record)
        before, node.inventory = node.inventory, Logged(body=body, place=place_of(record))
        again = before is None or before.place.logged_ms // KEYFRAME_MS != record.timestamp_ms // KEYFRAME_MS
        if before is not None and before.body.revision == body.revision:
            node.inventory = Logged(body=before.body, place=place_of(record))
        elif not again:
            again = True
        if new and again:
            node.kept.append(record)

    def _metric(self, record: Record, new: bool) -> None:  # noqa: ARG002, FBT001
        body = decode(record.value, NodeMetric) if record.value is not None else None
        node = self._of(record, body)
        if node is not None:
            node.metric = None if body is None else Logged(body=body, place=place_of(record))

    def _score(self, record: Record, new: bool) -> None:  # noqa: ARG002, FBT001
        body = decode(record.value, NodeScore) if record.value is not None else None
        node = self._of(record, body)
        if node is not None:
            node.score = None if body is None else Logged(body=body, place=place_of(record))

    def _allocatable(self, record: Record, new: bool) -> None:  # noqa: FBT001
        body = decode(record.value, NodeAllocatable) if record.value is not None else None
        node = self._of(record, body)
        if node is None:
            return
        if record.topic == ALLOCATABLE.name:
            node.take_allocatable(record, body)
        if new and body is not None:
            standing = body.reason, body.degraded, tuple(body.floored), bool(body.stale_ms), node.emptied
            node.keep(record, standing, self._span_ms)

    def _of(self, record: Record, body: object) -> NodeFigures | None:
        """Its node; a null makes none."""
        return self.nodes.get(text_of(record.key or b"")) if body is None else self._node(record)

    def _command(self, record: Record, new: bool) -> None:  # noqa: FBT001
        body = decode(record.value, NodeCommand)
        if body.proof not in PROVEN:
            return
        node = self._node(record)
        node.take_command(body)
        if new and body.answer != "keep":
            node.keep(record, (body.answer, body.reason[:20]), self._span_ms, always=bool(body.evict))

    def _outcome(self, record: Record, new: bool) -> None:  # noqa: FBT001
        body = decode(record.value, NodeOutcome)
        if body.pod is not None or body.bound in HOLDS | ENDS:
            pod = () if body.pod is None else (f"{body.pod.namespace}/{body.pod.name}", uid_of(body.target))
            self._entry(record, new, pod, body.node)
        node = self.nodes.get(body.node)
        if node is None or body.node != text_of(record.key or b""):
            return
        self._node(record)
        before = node.outcome
        node.take_outcome(record, body)
        standing = body.result, body.origin, body.rule if body.about_limit else ""
        turned = before is None or before.body.origin != body.origin
        if new and (body.result != "unchanged" or turned):
            always = turned or body.spent is not None or body.result == "failed"
            node.keep(record, standing, self._span_ms, always=always)

    def _policy(self, record: Record, new: bool) -> None:  # noqa: FBT001
        with suppress(BadMessageError):
            self.policies.take(record.key, record.value, str(place_of(record)))
        if self._policy_record is None or record.value != self._policy_record.value:
            self._policy_record = record
            self._entry(record, new)

    def _tick(self, record: Record, new: bool) -> None:  # noqa: FBT001
        span = record.timestamp_ms // TICK_MS
        if self._ticks.get(record.key) != span:
            self._ticks[record.key] = span
            self._entry(record, new)

    def _placement(self, record: Record, new: bool) -> None:  # noqa: FBT001
        body = decode(record.value, PodPlacement)
        self._entry(record, new, (f"{body.namespace}/{body.name}", body.pod_uid))

    def _missed(self, record: Record, new: bool) -> None:  # noqa: FBT001
        body = decode(record.value, MissedPod)
        self._entry(record, new, (f"{body.namespace}/{body.name}",))

    def _descheduling(self, record: Record, new: bool) -> None:  # noqa: FBT001
        body = decode(record.value, DeschedulingPass)
        self._entry(record, new, tuple(f"{one.namespace}/{one.name}" for one in body.victims))

    def _dead_letter(self, record: Record, new: bool) -> None:  # noqa: FBT001
        self._entry(record, new)

    def _latest(self, record: Record, new: bool) -> None:  # noqa: ARG002, FBT001
        self.latest.take(record)

    def _entry(self, record: Record, new: bool, names: Iterable[str] = (), node: str = "") -> None:  # noqa: FBT001
        if new:
            self.entries.append(Entry(record, tuple(name for name in names if name), node))


_TAKES = {
    INVENTORY.name: Recorder._inventory,  # noqa: SLF001 - its own table
    METRIC.name: Recorder._metric,  # noqa: SLF001
    SCORE.name: Recorder._score,  # noqa: SLF001
    ALLOCATABLE.name: Recorder._allocatable,  # noqa: SLF001
    SHADOW_ALLOCATABLE.name: Recorder._allocatable,  # noqa: SLF001
    COMMAND.name: Recorder._command,  # noqa: SLF001
    OUTCOME.name: Recorder._outcome,  # noqa: SLF001
    POLICY.name: Recorder._policy,  # noqa: SLF001
    TICK.name: Recorder._tick,  # noqa: SLF001
    PLACEMENT.name: Recorder._placement,  # noqa: SLF001
    MISSED_POD.name: Recorder._missed,  # noqa: SLF001
    DESCHEDULING.name: Recorder._descheduling,  # noqa: SLF001
    DEAD_LETTER.name: Recorder._dead_letter,  # noqa: SLF001
    **{topic.name: Recorder._latest for topic in LATEST},  # noqa: SLF001
}
