"""A recorded minute of all nodes: its parts, its individually kept records, and the encoding of kept records. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from slacktide.deploy.console.history.points import Block
from slacktide.schemas.codec import decode
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.knob import uid_of
from slacktide.schemas.missed_pod import MissedPod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import DEAD_LETTER, DESCHEDULING, MISSED_POD, PLACEMENT, POLICY, TICK
from slacktide.streams.decisions.evict.node_evict import ENDS, HOLDS
from slacktide.streams.records import Place, Record

TICK_MS = 10_000
"""One tick per worker is kept in each span."""
KEPT = (TICK, PLACEMENT, MISSED_POD, DESCHEDULING, DEAD_LETTER)
"""Topics for this class only; policies and outcomes are also used elsewhere."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An individually kept record."""

    record: Record
    names: tuple[str, ...] = ()
    """The record's pods, as NAMESPACE/NAME and uid."""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an object in a compacted topic."""

    topic: str
    key: bytes
    at_ms: int
    record: Record | None
    """None: it was deleted."""
    row: bytes | None = None
    """A Job's row in the list."""


@dataclass(frozen=True, slots=True)
class Minute:
    """Data to store in one transaction."""

    start_s: int
    """UTC epoch, a multiple of 60."""
    blocks: Mapping[str, Block]
    kept: Mapping[str, list[Record]]
    entries: list[Entry]
    rates: Mapping[str, int]
    """The number of records by topic."""
    offsets: Mapping[Place, int]
    """The next offset of each partition with new records. Earlier records are stored with this minute or before."""
    firsts: Mapping[Place, int]
    """The first offset read since the start."""
    texts: list[str]
    """New texts in the order of their numbers, from ``texts_from`` on."""
    versions: Sequence[Version] = ()
    """Oldest first."""
    texts_from: int = 0


class Kept(msgspec.Struct, array_like=True):
    """Records of one node and minute, and by topic the minute of the previous kept record."""

    before: Mapping[str, int]
    records: Sequence[Record]


def pack_kept(before: Mapping[str, int], records: Sequence[Record]) -> bytes:
    """Encode; only the trace header is kept."""
    slim = [
        msgspec.structs.replace(one, headers=tuple(header for header in one.headers if header[0] == "traceparent"))
        for one in records
    ]
    return zlib.compress(msgspec.msgpack.encode(Kept(before, slim)), 6)


def unpack_kept(blob: bytes) -> Kept:
    """Decode."""
    return msgspec.msgpack.decode(zlib.decompress(blob), type=Kept)


class Entries:
    """Entries of the current minute."""

    def __init__(self) -> None:
        self.found: list[Entry] = []
        self._ticks: dict[bytes | None, int] = {}
        self._policy: Record | None = None

    def take(self, record: Record, *, new: bool) -> None:
        """Add a record of one of ``KEPT``; one that is not new is already stored. Raises BadMessageError."""
        if record.topic == POLICY.name:
            differs = self._policy is None or record.value != self._policy.value
            self._policy = record if differs else self._policy
            self._add(record, new=new and differs)
        elif record.topic == TICK.name:
            span = record.timestamp_ms // TICK_MS
            self._add(record, new=new and self._ticks.get(record.key) != span)
            self._ticks[record.key] = span
        else:
            self._add(record, _pods_of(record), new=new)

    def take_outcome(self, record: Record, body: NodeOutcome, *, new: bool) -> None:
        """Add an outcome of an eviction or throttling."""
        if body.pod is not None or body.bound in HOLDS | ENDS:
            pod = () if body.pod is None else (f"{body.pod.namespace}/{body.pod.name}", uid_of(body.target))
            self._add(record, pod, body.node, new=new)

    def keep_what_holds(self) -> None:
        """Keep the policy in force, at the first start."""
        if self._policy is not None:
            self.found.append(Entry(self._policy))

    def full(self) -> list[Entry]:
        """End the minute."""
        found, self.found = self.found, []
        return found

    def _add(self, record: Record, names: Iterable[str] = (), node: str = "", *, new: bool) -> None:
        if new:
            self.found.append(Entry(record, tuple(name for name in names if name), node))


def _pods_of(record: Record) -> tuple[str, ...]:
    """Return the record's pods as NAMESPACE/NAME; for a placement also the uid."""
    if record.topic == PLACEMENT.name:
        placed = decode(record.value, PodPlacement)
        return f"{placed.namespace}/{placed.name}", placed.pod_uid
    if record.topic == MISSED_POD.name:
        missed = decode(record.value, MissedPod)
        return (f"{missed.namespace}/{missed.name}",)
    if record.topic == DESCHEDULING.name:
        return tuple(f"{one.namespace}/{one.name}" for one in decode(record.value, DeschedulingPass).victims)
    return ()
