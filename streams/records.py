"""Input and output records, dead letters for invalid ones, and isolation of errors within a batch."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from slacktide.schemas import heartbeat
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.bounds import clamped_ms
from slacktide.schemas.codec import encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.dead_letter import VALUE_BYTES_MAX, DeadLetter, UnreadableBatch
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.headers import headers
from slacktide.schemas.heartbeat import Heartbeat
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.proof import PROVEN
from slacktide.schemas.score import NodeScore
from slacktide.schemas.tick import WorkerTick
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    CREDIT,
    DEAD_LETTER,
    METRIC,
    SCORE,
    SHADOW_ALLOCATABLE,
    SHADOW_COMMAND,
    TICK,
    WINDOW,
)
from slacktide.schemas.window import NodeWindowSegment

_OfNode: TypeAlias = NodeCommand | NodeMetric | NodeAllocatable | NodeScore | NodeWindowSegment
TEXT_BYTES_MAX = 1_024
_FIGURES: dict[type, tuple[str, str]] = {
    NodeMetric: (METRIC.name, "metric"),
    NodeAllocatable: (ALLOCATABLE.name, "allocatable"),
    NodeScore: (SCORE.name, "score"),
}
FIGURES = (METRIC.name, ALLOCATABLE.name, SCORE.name)
"""Topics with a node's latest figures. Heartbeats keep them fresh."""
HEADERS_MAX = 32
"""Limit for headers in a dead letter, so that it is never too large itself."""


class Place(NamedTuple):
    """A topic partition, equal to the client's TopicPartition."""

    topic: str
    partition: int


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A consumed record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Append time or create time, as the topic is configured."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()

    @property
    def place(self) -> Place:
        """Return its topic partition."""
        return Place(self.topic, self.partition)


class Out(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A record to produce; fields after ``headers`` are for metrics."""

    topic: str
    partition: int | None = None
    """None: by key."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    answer: str = ""
    """For commands: set, keep or skipped."""
    age_ms: int | None = None
    """For commands: time from sample to decision, by two clocks."""
    unproven: str = ""
    """For commands: why the sample fails the node proof; "": it is valid, or not required."""
    repeated: bool = False
    """For commands: the sample is not newer than all before it of its node."""

    @property
    def sign_of_life(self) -> bool:
        """Whether this answer shows that its node is alive: anybody may invent a sample, or repeat a recorded one."""
        return bool(self.answer) and not self.unproven and not self.repeated

    def written_headers(self) -> Sequence[tuple[str, bytes]]:
        """Return the headers to write."""
        return self.headers


def event(
    topic: str,
    key: str,
    value: bytes | None,
    *,
    source: str,
    event_id: str,
    event_ms: int,
    partition: int | None = None,
) -> Out:
    """Return a record whose key is its event's subject; ``value`` None: a tombstone. ``partition`` None: by key.

    ``event_id``: unique among the source's events. ``event_ms``: UTC epoch.
    """
    lines = headers(kind=topic, source=source, subject=key, event_id=event_id, event_ms=event_ms)
    return Out(topic=topic, partition=partition, key=key.encode(), value=value, headers=lines)


def of_queue(topic: str, key: str, value: bytes | None, *, source: str, event_ms: int, which: str = "") -> Out:
    """Return a record for a topic of the job queue, each of which has one partition; ``value`` None: a tombstone.

    ``which`` distinguishes events of the same key; "": by time. ``event_ms``: UTC epoch.
    """
    event_id = f"{key}/{which or event_ms}"
    return event(topic, key, value, source=source, event_id=event_id, event_ms=event_ms, partition=0)


def place_of(record: Record) -> str:
    """Return topic, partition and offset, for messages."""
    return f"{record.topic} {record.partition}:{record.offset}"


def text_of(raw: bytes) -> str:
    """Return bytes as text; escape invalid UTF-8."""
    return raw.decode(errors="backslashreplace")


def check_node(key: str, node: str, kind: str) -> None:
    """Check that a record's key is the node in its body. Raises BadMessageError if it is another."""
    if key != node:
        raise BadMessageError(kind, f"the record's key is {key!r}, its node {node!r}")


def clipped(raw: bytes | None) -> str | None:
    """Return a key or header for a dead letter, as clipped text."""
    return None if raw is None else text_of(raw[:TEXT_BYTES_MAX])


def dead_letter(record: Record, *, reader: str, reason: str, now_ms: int) -> Out:
    """Return a dead letter for a consumed record: its position and the reason. It always fits a record.

    ``record``: the invalid record, or the one that replaces an unreadable batch. ``now_ms``: UTC epoch milliseconds.
    """
    value, offset, last_offset = record.value, record.offset, None
    if isinstance(value, UnreadableBatch):
        reason, offset, last_offset, value = value.reason, value.first_offset, record.offset, None
    letter = DeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=offset,
        reason=reason[:TEXT_BYTES_MAX],
        reader=reader,
        refused_ms=clamped_ms(now_ms),
        key=clipped(record.key),
        headers={name[:TEXT_BYTES_MAX]: clipped(text) or "" for name, text in record.headers[:HEADERS_MAX]},
        value_base64=None if value is None else b64encode(value[:VALUE_BYTES_MAX]).decode(),
        value_bytes=len(value or b""),
        last_offset=last_offset,
    )
    return _letter(letter, record.key)


def dead_letter_of_refused(out: Out, *, writer: str, reason: str, now_ms: int) -> Out:
    """Return a dead letter for a record that Kafka rejects, without offset and value, which would be rejected again."""
    letter = DeadLetter(
        topic=out.topic,
        partition=out.partition or 0,
        offset=0,
        reason=f"written by {writer}, refused by Kafka: {reason}"[:TEXT_BYTES_MAX],
        reader=writer,
        refused_ms=clamped_ms(now_ms),
        key=clipped(out.key),
        value_bytes=len(out.value or b""),
    )
    return _letter(letter, out.key)


def _letter(letter: DeadLetter, key: bytes | None) -> Out:
    return Out(
        topic=DEAD_LETTER.name,
        partition=None,
        key=key if key is None or len(key) <= TEXT_BYTES_MAX else None,
        value=encode(letter),
        headers=headers(
            kind=DEAD_LETTER.name,
            source=letter.reader,
            subject=letter.key or "",
            event_id=f"{letter.topic}/{letter.partition}/{letter.offset}",
            event_ms=letter.refused_ms,
        ),
    )


class Writer:
    """Wraps messages of one part in records."""

    def __init__(self, source: str) -> None:
        self._source = source

    def answer(self, command: NodeCommand, partition: int, *, repeated: bool = False) -> Out:
        """Return a command for a sample of that partition; ``repeated``: see ``Out``."""
        age_ms = max(0, command.decided_ms - command.observed_ms)
        out = self._command(COMMAND.name, command, partition, age_ms)
        if command.proof in PROVEN and not repeated:
            return out
        unproven = "" if command.proof in PROVEN else command.proof
        return msgspec.structs.replace(out, unproven=unproven, repeated=repeated)

    def figures(self, its: NodeMetric | NodeAllocatable | NodeScore, partition: int) -> Out:
        """Return a node's averages, batch allocatable or figures for schedulers."""
        topic, kind = _FIGURES[type(its)]
        return self._out(topic, its, partition, f"{kind}/{_summary(its)}")

    def heartbeats(self, beat: Heartbeat, partition: int, now_ms: int) -> list[Out]:
        """Return heartbeats that cover nodes of a partition, for each topic of figures; ``now_ms``: UTC epoch."""
        outs = []
        for key, nodes in heartbeat.parts(beat.nodes):
            body = encode(msgspec.structs.replace(beat, nodes=list(nodes)))
            lines = headers(
                kind=heartbeat.KIND,
                source=self._source,
                subject=key.decode(),
                event_id=f"{key.decode()[1:]}/{partition}/{beat.epoch}/{beat.ticked_ms}",
                event_ms=now_ms,
            )
            lines = (*lines, (heartbeat.HEADER, body))
            outs += [Out(topic=topic, partition=partition, key=key, value=None, headers=lines) for topic in FIGURES]
        return outs

    def window(self, segment: NodeWindowSegment, partition: int) -> Out:
        """Return one minute of a node's window."""
        return self._out(WINDOW.name, segment, partition, f"window/{_which(segment)}/{segment.begin_ms}")

    def tick(self, tick: WorkerTick) -> Out:
        """Return a worker's read positions."""
        event_id = f"tick/{tick.number}/{tick.ticked_ms}"
        return self._event(TICK.name, tick.worker, encode(tick), event_id, tick.ticked_ms)

    def shadow_answer(self, command: NodeCommand, partition: int) -> Out:
        """Return a command of the shadow policy, which nobody applies."""
        return self._command(SHADOW_COMMAND.name, command, partition, None)

    def _command(self, topic: str, command: NodeCommand, partition: int, age_ms: int | None) -> Out:
        """Return a command; one that keeps is written together with others (``kept``), and without headers."""
        if command.answer != "keep":
            out = self._out(topic, command, partition, command.id, answer=command.answer)
            return out if age_ms is None else msgspec.structs.replace(out, age_ms=age_ms)
        value = encode(msgspec.structs.replace(command, observed_ms=0, facts_revision="", pods_revision=""))
        key = command.node.encode()
        return Out(topic=topic, partition=partition, key=key, value=value, answer="keep", age_ms=age_ms)

    def shadow_allocatable(self, allocatable: NodeAllocatable, partition: int) -> Out:
        """Return the allocatable under the shadow policy."""
        return self._out(SHADOW_ALLOCATABLE.name, allocatable, partition, f"allocatable/{_summary(allocatable)}")

    def credit(self, lease: EvictionCredit) -> Out:
        """Return a lease of eviction credit."""
        event_id = f"{lease.epoch}/{lease.number}"
        return self._event(CREDIT.name, lease.node, encode(lease), event_id, lease.granted_ms)

    def credit_gone(self, node: str, event_id: str, event_ms: int) -> Out:
        """Return a tombstone for a removed node's lease."""
        return self._event(CREDIT.name, node, None, event_id, event_ms)

    def tombstones(self, record: Record, node: str, topics: Sequence[str] = FIGURES) -> list[Out]:
        """Return tombstones for the figures of a removed node."""
        return [
            Out(
                topic=topic,
                partition=record.partition,
                key=record.key,
                value=None,
                headers=headers(
                    kind=topic,
                    source=self._source,
                    subject=node,
                    event_id=f"removed/{record.topic}/{record.partition}/{record.offset}",
                    event_ms=record.timestamp_ms,
                ),
            )
            for topic in topics
        ]

    def dead(self, record: Record, reason: str, now_ms: int) -> Out:
        """Return a dead letter for an invalid record."""
        return dead_letter(record, reader=self._source, reason=reason, now_ms=now_ms)

    def failed(self, stage: str, record: Record, error: Exception) -> Out:
        """Return a dead letter for a record on which a stage failed."""
        return self.dead(record, failure(stage, error), record.timestamp_ms)

    def refused(self, out: Out, why: str, now_ms: int) -> Out:
        """Return a dead letter for a record that Kafka rejected."""
        return dead_letter_of_refused(out, writer=self._source, reason=why, now_ms=now_ms)

    def _event(self, topic: str, key: str, value: bytes | None, event_id: str, event_ms: int) -> Out:
        return event(topic, key, value, source=self._source, event_id=event_id, event_ms=event_ms, partition=0)

    def _out(
        self,
        topic: str,
        message: _OfNode,
        partition: int,
        event_id: str,
        *,
        answer: str = "",
        age_ms: int | None = None,
    ) -> Out:
        return Out(
            topic=topic,
            partition=partition,
            key=message.node.encode(),
            value=encode(message),
            headers=headers(
                kind=topic,
                source=self._source,
                subject=message.node,
                event_id=event_id,
                event_ms=message.observed_ms,
                trace=_which(message),
            ),
            answer=answer,
            age_ms=age_ms,
        )


def _which(message: _OfNode) -> str:
    return f"{message.node}/{message.boot_id}/{message.seq:010d}"


def _summary(message: NodeMetric | NodeAllocatable | NodeScore) -> str:
    """Exclude changing fields of silent nodes, whose figures are republished."""
    return f"{_which(message)}/stale-{message.stale_ms}" if message.stale_ms else _which(message)


T = TypeVar("T")
R = TypeVar("R")


def letters_of_each(
    records: Iterable[Record], take: Callable[[Record], object], *, reader: str, now_ms: int
) -> list[Out]:
    """Let ``take`` fold records in order; return dead letters for those that raise, which do not stop the others."""
    letters = []
    for record in records:
        try:
            take(record)
        except Exception as exc:  # noqa: BLE001 - an invalid record does not stop the others
            letters.append(dead_letter(record, reader=reader, reason=failure("fold", exc), now_ms=now_ms))
    return letters


def dead_letter_of_unwritten(topic: str, partition: int, key: str, *, writer: str, reason: str, now_ms: int) -> Out:
    """Return a dead letter for a record that cannot be computed, and so has neither offset nor value."""
    none = Record(topic=topic, partition=partition, offset=0, timestamp_ms=0, key=key.encode(), value=None)
    return dead_letter(none, reader=writer, reason=reason, now_ms=now_ms)


def isolated(
    work: Callable[[Sequence[T]], Sequence[R]], items: Sequence[T], failed: Callable[[T, Exception], Sequence[R]]
) -> Sequence[R]:
    """Process all items in one call; if that raises, one by one; ``failed`` returns an item's substitute results.

    If ``work`` raises, it must not have changed the state of valid items.
    """
    with suppress(Exception):  # an error must not affect the other items
        return work(items)
    results: list[R] = []
    for item in items:
        try:
            results += work([item])
        except Exception as exc:  # noqa: BLE001 - as above
            results += failed(item, exc)
    return results
