"""Turns records into minutes of the history. Pure: record timestamps are the only clock.

A second is closed when later records arrive. Each node then gets a row with events of that second and the state at its
end. Gaps remain unknown: a node without a sample has no use.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from slacktide.deploy.console.history.file import TEXTS_MAX
from slacktide.deploy.console.history.minute import KEPT, Entries, Entry, Latest, Minute, Version
from slacktide.deploy.console.history.node_figures import NodeFigures
from slacktide.deploy.console.history.points import POINTS, Block, empty
from slacktide.schemas.access import SHOWN
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.heartbeat import RESERVED, is_heartbeat
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.message import Message
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import InForce, Policy
from slacktide.schemas.proof import PROVEN
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    CREDIT,
    INVENTORY,
    JOB_STATUS,
    METRIC,
    OUTCOME,
    POLICY,
    QUEUE_SPEC,
    QUEUE_STATE,
    QUEUE_WORKLOAD,
    SAMPLE,
    SCORE,
    SERVICE_PROFILE,
    SHADOW_ALLOCATABLE,
)
from slacktide.streams.analysis.explain.evidence import Logged, place_of
from slacktide.streams.analysis.explain.node_log import policy_refused
from slacktide.streams.decisions.coverage import Coverage
from slacktide.streams.records import Place, Record, text_of
from slacktide.streams.samples import SampleReader

OBJECTS = (JOB_STATUS, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE, CREDIT, SERVICE_PROFILE)
"""Compacted topics of Jobs, queue, credit and services. A cluster may lack them."""
STATE = tuple(topic for topic in SHOWN if topic.cleanup == "compact" and topic not in OBJECTS)
"""Other compacted topics: read from the start after each restart."""
FACTS = tuple(topic for topic in SHOWN if topic.cleanup == "delete")
"""Topics read from the last stored minute."""
TOPICS = (*STATE, *FACTS, *OBJECTS)
KEEP_MS_MIN, KEEP_MS_PER_NODE = 1_000, 300
"""One record per node and topic is kept in each span: with few nodes all, with 1,000 one in 5 min."""
LOOKS_MAX = 200
"""Nodes that are looked at for their worst finding in a second; of more nodes, each in its turn: of 1,000 in 5 s."""
KEYFRAME_MS = 3_600_000
"""A keyframe is kept when facts or pods changed, and otherwise once in this time."""
OTHER_REASON = "(one of too many reasons)"
_PUBLISHED: Mapping[str, type[Message]] = {
    METRIC.name: NodeMetric,
    SCORE.name: NodeScore,
    ALLOCATABLE.name: NodeAllocatable,
    SHADOW_ALLOCATABLE.name: NodeAllocatable,
}
_KEPT_NAMES = {topic.name for topic in KEPT}
_OBJECT_NAMES = {topic.name for topic in OBJECTS}


@dataclass(slots=True)
class Recorder:
    """Records all nodes.

    Args:
        begin_s: the first second to record, UTC epoch; earlier records only set state.
        texts: numbers of stored texts.
        first: nothing is stored yet, so the initial state is kept, too.
    """

    begin_s: int
    texts: dict[str, int] = field(default_factory=dict)
    first: bool = False
    unreadable: int = 0
    """Invalid records. Workers send them to the dead letters."""
    minutes: list[Minute] = field(default_factory=list)
    """Complete minutes, until the follower stores them."""
    nodes: dict[str, NodeFigures] = field(default_factory=dict)
    policies: InForce = field(default_factory=InForce)
    policy: Logged[Policy] | None = None
    """The policy in force, with its record's position."""
    latest: Latest = field(init=False)
    """Jobs, queue, credit and services."""
    entries: Entries = field(default_factory=Entries)
    second_s: int = 0
    rates: dict[str, int] = field(default_factory=dict)
    """The rates of the current minute."""
    _samples: SampleReader = field(default_factory=SampleReader)
    _coverage: Coverage = field(default_factory=Coverage)
    _offsets: dict[Place, int] = field(default_factory=dict)
    _firsts: dict[Place, int] = field(default_factory=dict)
    _stored_texts: int = 0
    _filled_in: bool = False

    def __post_init__(self) -> None:
        self.second_s = self.begin_s
        self.latest = Latest(stored=not self.first)
        self._stored_texts = len(self.texts)

    def take(self, record: Record, *, known: bool = False) -> None:
        """Add the next record by timestamp. A known one only sets state: it is stored, or precedes the end of a gap."""
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
            elif record.topic == SAMPLE.name:
                self._sample(record, new=new)
            elif record.topic in _OBJECT_NAMES:
                self.latest.take(record, known=known)
            elif record.topic in _KEPT_NAMES:
                self.entries.take(record, new=new)
            else:
                _TAKES[record.topic](self, record, new=new)
        except BadMessageError:
            self.unreadable += 1

    def advance(self, to_ms: int) -> None:
        """Close all seconds before this time."""
        while self.second_s < to_ms // 1_000:
            self._begin_anew()
            self._close()

    def _begin_anew(self) -> None:
        """Drop figures of one second from records that only set state."""
        if self._filled_in:
            self._filled_in = False
            for node in self.nodes.values():
                node.forget_second()

    def jump(self, to_s: int) -> None:
        """Continue at a later second; the gap stays."""
        if to_s > self.second_s:
            if to_s // POINTS != self.second_s // POINTS:
                self._full()
            self.second_s = to_s

    @property
    def has_any(self) -> bool:
        """Return whether there are nodes or Jobs."""
        return bool(self.nodes or self.latest.rows)

    def blocks(self, start_s: int) -> Mapping[str, Block]:
        """Return the points by node of a minute that is not stored yet; empty: none."""
        if start_s == self.second_s // POINTS * POINTS:
            return {name: node.block for name, node in list(self.nodes.items())}
        return next((one.blocks for one in list(self.minutes) if one.start_s == start_s), {})

    def kept_of(self, node: str) -> list[Record]:
        """Return a node's kept records that are not stored yet."""
        older = [record for one in list(self.minutes) for record in one.kept.get(node, ())]
        return older + (list(self.nodes[node].kept) if node in self.nodes else [])

    def unstored(self) -> list[Entry]:
        """Return individually kept records that are not stored yet."""
        return [entry for one in list(self.minutes) for entry in one.entries] + list(self.entries.found)

    def unstored_versions(self) -> list[Version]:
        """Return kept versions that are not stored yet, oldest first."""
        return [version for one in list(self.minutes) for version in one.versions] + list(self.latest.versions)

    def _close(self) -> None:
        if self.first:
            self.first = False
            for node in self.nodes.values():
                node.keep_what_holds()
            self.entries.keep_what_holds()
        slot, now_ms = self.second_s % POINTS, (self.second_s + 1) * 1_000
        turns = -(-len(self.nodes) // LOOKS_MAX)
        policy, refused = None if self.policy is None else self.policy.body, policy_refused(self.policies)
        for number, node in enumerate(self.nodes.values()):
            if not node.looked or number % turns == self.second_s % turns:
                node.look(now_ms, self.policy, refused)
            row = node.row(now_ms, self._number, policy)
            for column, value in zip(node.block, row, strict=True):
                column[slot] = value
        self.second_s += 1
        if slot == POINTS - 1:
            self._full(self.second_s - POINTS)

    def _full(self, start_s: int | None = None) -> None:
        start_s = self.second_s // POINTS * POINTS if start_s is None else start_s
        texts_from, texts = self._stored_texts, list(self.texts)[self._stored_texts :]
        self._stored_texts += len(texts)
        self.minutes.append(
            Minute(
                start_s=start_s,
                blocks={name: node.block for name, node in self.nodes.items() if any(node.block[0])},
                kept={name: node.kept for name, node in self.nodes.items() if node.kept},
                entries=self.entries.full(),
                rates=self.rates,
                offsets=dict(self._offsets),
                firsts=self._firsts,
                texts=texts,
                texts_from=texts_from,
                versions=self.latest.full(self.second_s * 1_000),
            )
        )
        self.rates = {}
        self.nodes = {name: node for name, node in self.nodes.items() if not node.gone(self.second_s * 1_000)}
        for node in self.nodes.values():
            node.block, node.kept = empty(1), []

    def _number(self, text: str) -> int:
        number = self.texts.get(text)
        if number is None:
            text = text if len(self.texts) < TEXTS_MAX else OTHER_REASON
            number = self.texts.setdefault(text, len(self.texts))
        return number

    @property
    def _span_ms(self) -> int:
        return max(KEEP_MS_MIN, KEEP_MS_PER_NODE * len(self.nodes))

    def _node(self, record: Record) -> NodeFigures:
        name = text_of(record.key or b"")
        if not name or name.startswith(RESERVED):
            raise BadMessageError(record.topic, "the key is not the name of a node")
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
        body = self._samples.read(record)
        if body.node != text_of(record.key or b""):
            return
        node = self._node(record)
        before = node.keyframe
        node.take_sample(record, body)
        if new and (body.facts is not None or body.pods is not None):
            revisions = body.facts_revision, body.pods_revision
            same = before is not None and revisions == (before.body.facts_revision, before.body.pods_revision)
            whole = node.keyframe is node.sample
            again = whole and node.whole_ms // KEYFRAME_MS != record.timestamp_ms // KEYFRAME_MS
            if not same or again:
                node.kept.append(record)
        if node.keyframe is node.sample:
            node.whole_ms = record.timestamp_ms

    def _inventory(self, record: Record, *, new: bool) -> None:
        if record.value is None:
            self.nodes.pop(text_of(record.key or b""), None)
            return
        body = decode(record.value, NodeInventory)
        node = self._node(record)
        before = node.inventory
        same = before is not None and before.body.revision == body.revision
        again = before is None or before.place.logged_ms // KEYFRAME_MS != record.timestamp_ms // KEYFRAME_MS
        node.inventory = Logged(body=before.body if before is not None and same else body, place=place_of(record))
        if new and (again or not same):
            node.kept.append(record)

    def _published(self, record: Record, *, new: bool) -> None:
        """Take a metric, score or allocatable record. A tombstone does not create a node."""
        kind = _PUBLISHED[record.topic]
        body: Any = None if record.value is None else decode(record.value, kind)
        node = self.nodes.get(text_of(record.key or b"")) if body is None else self._node(record)
        if node is None:
            return
        logged = None if body is None else Logged(body=body, place=place_of(record))
        if kind is NodeMetric:
            node.metric = logged
        elif kind is NodeScore:
            node.score = logged
        elif record.topic == ALLOCATABLE.name:
            node.take_allocatable(logged)
        if new and kind is NodeAllocatable and body is not None:
            standing = body.reason, body.degraded, tuple(body.floored), bool(body.stale_ms), node.emptied
            node.keep(record, standing, self._span_ms)

    def _command(self, record: Record, *, new: bool) -> None:
        body = decode(record.value, NodeCommand)
        if body.proof not in PROVEN:
            if (known := self.nodes.get(text_of(record.key or b""))) is not None:
                known.refused = Logged(body=body, place=place_of(record))
            return
        node = self._node(record)
        node.take_command(record, body)
        if new and body.answer != "keep":
            node.keep(record, (body.answer, body.reason[:20]), self._span_ms, always=bool(body.evict))

    def _outcome(self, record: Record, *, new: bool) -> None:
        body = decode(record.value, NodeOutcome)
        self.entries.take_outcome(record, body, new=new)
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

    def _policy(self, record: Record, *, new: bool) -> None:
        with suppress(BadMessageError):
            if self.policies.take(record.key, record.value, str(place_of(record))):
                self.policy = Logged(body=self.policies.policy, place=place_of(record))
        self.entries.take(record, new=new)


_TAKES = {
    INVENTORY.name: Recorder._inventory,  # noqa: SLF001 - its own table
    COMMAND.name: Recorder._command,  # noqa: SLF001
    OUTCOME.name: Recorder._outcome,  # noqa: SLF001
    POLICY.name: Recorder._policy,  # noqa: SLF001
    **dict.fromkeys(_PUBLISHED, Recorder._published),  # noqa: SLF001
}
