"""Finds facts and pod lists at a takeover, which samples name but do not carry. Pure.

An owner writes both into each minute's segment, and an agent sends a keyframe every minute. So they are in the newest
segments, or in newer samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec import Raw

from slacktide.schemas.bounds import Name, Revision
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.proof import PROVEN, Verdict
from slacktide.schemas.sample_columns_codec import BEGIN, NOW
from slacktide.schemas.topics import WINDOW
from slacktide.streams.records import Record, text_of
from slacktide.streams.worker.node_state import Carried, Node
from slacktide.streams.worker.reading import (
    Identity,
    Naming,
    SoundSample,
    check_key,
    identity_of,
    naming_of,
    sample_of,
)

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
            try:
                self._adopt(record)
            except Exception:  # noqa: BLE001, S112 - one record's
                continue

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

    def _adopt(self, record: Record) -> None:
        carried = _of_segment(record) if record.topic == WINDOW.name else self._of_sample(record)
        if carried is not None and not isinstance(node := self._begin(record.partition, carried.node), str):
            node.adopt(carried)

    def _of_sample(self, record: Record) -> Carried | None:
        if self._verdict(record) not in PROVEN:
            return None
        columns = (record.value or b"").startswith(BEGIN)
        named: Naming | SoundSample = naming_of(record, 0) if columns else sample_of(record)
        return Carried(named.node, named.pods_revision, named.pods, named.facts_revision, named.facts)


class _Segment(Message, frozen=True, kw_only=True):
    """The part of a segment that names facts and pods. Segments of the version before do not have it."""

    node: Name
    facts_revision: Revision = ""
    facts: Raw = Raw()
    pods_revision: Revision = ""
    listed: Raw = Raw()


def _of_segment(record: Record) -> Carried:
    named = decode(record.value, _Segment)
    check_key(record, named.node, "NodeWindowSegment")
    return Carried(named.node, named.pods_revision, named.listed, named.facts_revision, named.facts)


def _changes(records: Iterable[Record]) -> Iterator[tuple[Record, Identity]]:
    """Yield samples, except those in columns with the same head as the one before of their node."""
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
        if value.startswith(BEGIN):
            heads[record.key] = value[: value.find(NOW)]
        yield record, named
