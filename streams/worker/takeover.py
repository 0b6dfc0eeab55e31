"""Rebuilds nodes at a takeover: windows from late samples and published minutes, facts and pod lists from records.

Samples name facts and pod lists, but do not carry them. An owner writes both into each minute's segment, and an agent
sends a keyframe every minute. So they are in the newest segments, or in newer samples.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

from msgspec import Raw

from slacktide.schemas.bounds import Name, Revision
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.proof import PROVEN, Verdict
from slacktide.schemas.sample_columns_codec import NOW
from slacktide.schemas.topics import WINDOW
from slacktide.streams.columns.segments import (
    MINUTE_MS,
    Minute,
    minutes_of,
    restore,
    written_minute,
    written_seconds,
)
from slacktide.streams.columns.series import NodeWindow
from slacktide.streams.proofs import Unproven
from slacktide.streams.records import Out, Record, Writer, isolated, text_of
from slacktide.streams.worker.node_state import Carried, Held, NamedSample, Node, waves
from slacktide.streams.worker.one_by_one import Single, State
from slacktide.streams.worker.publishing import Publishing
from slacktide.streams.worker.reading import Naming, check_key, identity_of, naming_of

FILLED_AT_ONCE = 16
"""Nodes whose last minutes are filled in one step of some milliseconds."""


class Filling:
    """Fills the gaps in the windows of a worker; ``publishing`` merges samples that are not late after all."""

    def __init__(
        self, worker: State, single: Single, publishing: Publishing, writer: Writer, unproven: Unproven
    ) -> None:
        self._worker, self._single, self._publishing = worker, single, publishing
        self._writer, self._unproven = writer, unproven
        self._windows = worker.held.windows

    def fill(self, records: Iterable[Record]) -> list[Out]:
        """Take in late samples without an answer. Bad ones become dead letters."""
        outs: list[Out] = []
        samples: list[NamedSample] = []
        for record in records:
            if (verdict := self._single.verdict(record)) not in PROVEN:
                outs += self._unproven.dead(record, verdict, record.timestamp_ms)
                continue
            try:
                each = self._single.named(record, self._single.read(record), late=True)
            except Exception as exc:  # noqa: BLE001 - one record's
                outs.append(self._writer.failed("read a late sample", record, exc))
            else:
                samples += [each] if isinstance(each, NamedSample) else []
        for wave in waves(samples):
            for each, merged in zip(wave, self._publishing.merge(wave, outs), strict=True):
                if merged:
                    continue
                try:
                    self._windows.fill(each.node.window, each.sample)
                except Exception as exc:  # noqa: BLE001 - one sample's
                    outs.append(self._writer.failed("fill", each.record, exc))
        return outs

    def fill_from(self, other: Held, partition: int, minutes: int) -> Iterator[None]:
        """Fill gaps with another worker's last minutes, some nodes per step."""
        nodes = list(other.of(partition).items())
        for begin in range(0, len(nodes), FILLED_AT_ONCE):
            some = nodes[begin : begin + FILLED_AT_ONCE]
            isolated(lambda some: self._fill_from(other, partition, minutes, some), some, lambda *_: [])
            yield

    def _fill_from(
        self, other: Held, partition: int, minutes: int, nodes: Iterable[tuple[str, Node]]
    ) -> Sequence[None]:
        found = []
        for name, node in nodes:
            if isinstance(known := self._worker.begin(partition, name), str):
                continue
            window = known.window
            newest = node.window.watermark_ms // MINUTE_MS
            numbers = range(newest - minutes, newest + 1)
            found += [(window, one) for one in minutes_of(other.windows, node.window, numbers)]
        restore(self._windows, found)
        return ()

    def restore(self, records: Iterable[Record]) -> list[Out]:
        """Restore windows from published minutes; bad ones become dead letters."""
        outs: list[Out] = []
        found: list[tuple[Record, NodeWindow, Minute]] = []
        for record in records:
            try:
                found += self._segment_in(record)
            except Exception as exc:  # noqa: BLE001 - one segment's
                outs.append(self._writer.failed("restore", record, exc))

        def restored(some: Sequence[tuple[Record, NodeWindow, Minute]]) -> list[Out]:
            restore(self._windows, [(window, its) for _, window, its in some])
            return []

        outs += isolated(restored, found, lambda one, exc: [self._writer.failed("restore", one[0], exc)])
        for _, window, its in found:
            if its.end_ms <= window.watermark_ms:  # otherwise its samples come again, or its clock was set back
                window.minute = max(window.minute, its.begin_ms // MINUTE_MS + 1)
        return outs

    def _segment_in(self, record: Record) -> list[tuple[Record, NodeWindow, Minute]]:
        """Return a segment's minute with its node's window; empty if the node does not exist."""
        if record.value is None:
            return []
        segment_ = written_seconds(record.value)
        check_key(record, segment_.node, "NodeWindowSegment")
        node = self._worker.begin(record.partition, segment_.node)
        if isinstance(node, str):
            return []
        minute = written_minute(segment_, record.value, node.window)
        if not node.newest[0]:  # so that further samples of this boot do not restart the node
            node.newest = segment_.boot_id, -1
            node.boots.adopt(segment_.boot_id)
        return [(record, node.window, minute)]


CARRIES = b'"facts":{', b'"pods":['
"""A record that carries facts or pods contains one of these."""

Lacking: TypeAlias = set[tuple[bytes, str]]
"""Key and revision of unknown lists or facts."""


class Lists:
    """Finds facts and pod lists for a worker's nodes; ``begin`` returns a node's state, or why there is none."""

    def __init__(self, begin: Callable[[int, str], Node | str], verdict: Callable[[Record], Verdict]) -> None:
        self._begin, self._verdict = begin, verdict

    def adopt(self, records: Iterable[Record]) -> None:
        """Remember what segments and proven samples carry, newest first.

        Skips bad ones: others make dead letters of them.
        """
        for record in records:
            if record.value is None or not any(mark in record.value for mark in CARRIES):
                continue
            with suppress(Exception):  # one record's
                if record.topic == WINDOW.name:
                    its = decode(record.value, _Segment)
                    check_key(record, its.node, "NodeWindowSegment")
                    carried = Carried(its.node, its.pods_revision, its.listed, its.facts_revision, its.facts)
                elif self._verdict(record) in PROVEN:
                    named = naming_of(record)
                    carried = Carried(named.node, named.pods_revision, named.pods, named.facts_revision, named.facts)
                else:
                    continue
                if not isinstance(node := self._begin(record.partition, carried.node), str):
                    node.adopt(carried)

    def lacking(self, records: Iterable[Record]) -> Lacking:
        """Return the facts and lists that these samples name, but neither they nor the node's state contain."""
        lacking: Lacking = set()
        for record, named in _changes(records):
            key, value = record.key or b"", record.value or b""
            node = self._begin(record.partition, text_of(key))
            if isinstance(node, str):
                continue
            for revision, kept, mark in (
                (named.pods_revision, node.pods.kept, CARRIES[1]),
                (named.facts_revision, node.facts.kept, CARRIES[0]),
            ):
                if revision not in kept and mark not in value:
                    lacking.add((key, revision))
        return lacking


class _Segment(Message, frozen=True, kw_only=True):
    """The part of a segment that names facts and pods."""

    node: Name
    facts_revision: Revision = ""
    facts: Raw = Raw()
    pods_revision: Revision = ""
    listed: Raw = Raw()


def _changes(records: Iterable[Record]) -> Iterator[tuple[Record, Naming]]:
    """Yield samples, except those with the same head as the one before of their node."""
    heads: dict[bytes | None, bytes] = {}
    for record in records:
        value = record.value
        if value is None:
            continue
        head = heads.get(record.key)
        if head is not None and value.startswith(head):
            continue
        try:
            named = identity_of(record)
        except BadMessageError:
            continue
        heads[record.key] = value[: value.find(NOW)]
        yield record, named
