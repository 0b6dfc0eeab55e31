"""Recorded minutes: parts, individually kept records, and versions of objects in compacted topics. Pure."""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from slacktide.deploy.console.history.points import Block
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.knob import uid_of
from slacktide.schemas.missed_pod import MissedPod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.queue import QueueState
from slacktide.schemas.service import ServiceProfile
from slacktide.schemas.topics import (
    CREDIT,
    DEAD_LETTER,
    DESCHEDULING,
    JOB_STATUS,
    MISSED_POD,
    PLACEMENT,
    POLICY,
    QUEUE_SPEC,
    QUEUE_STATE,
    QUEUE_WORKLOAD,
    SERVICE_PROFILE,
    TICK,
    Topic,
)
from slacktide.streams.analysis.explain.evidence import WORST_FIRST, Logged, Severity, place_of
from slacktide.streams.analysis.explain.job import condition, explain_job
from slacktide.streams.decisions.evict.node_evict import ENDS, HOLDS
from slacktide.streams.queue.ledger import object_of, workload_of
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
        names: Iterable[str] = ()
        if record.topic == POLICY.name:
            differs = self._policy is None or record.value != self._policy.value
            self._policy = record if differs else self._policy
            new = new and differs
        elif record.topic == TICK.name:
            span = record.timestamp_ms // TICK_MS
            new = new and self._ticks.get(record.key) != span
            self._ticks[record.key] = span
        elif record.topic == PLACEMENT.name:
            placed = decode(record.value, PodPlacement)
            names = f"{placed.namespace}/{placed.name}", placed.pod_uid
        elif record.topic == MISSED_POD.name:
            missed = decode(record.value, MissedPod)
            names = (f"{missed.namespace}/{missed.name}",)
        elif record.topic == DESCHEDULING.name:
            names = (f"{one.namespace}/{one.name}" for one in decode(record.value, DeschedulingPass).victims)
        if new:
            self.found.append(Entry(record, tuple(name for name in names if name)))

    def take_outcome(self, record: Record, body: NodeOutcome, *, new: bool) -> None:
        """Add an outcome of an eviction or throttling."""
        if new and (body.pod is not None or body.bound in HOLDS | ENDS):
            names = () if body.pod is None else (f"{body.pod.namespace}/{body.pod.name}", uid_of(body.target))
            self.found.append(Entry(record, tuple(name for name in names if name), body.node))

    def keep_what_holds(self) -> None:
        """Keep the policy in force, at the first start."""
        if self._policy is not None:
            self.found.append(Entry(self._policy))

    def full(self) -> list[Entry]:
        """End the minute."""
        found, self.found = self.found, []
        return found


KEEP_MS_MIN, KEEP_MS_PER_JOB = 1_000, 20
"""One version per Job is kept in each span: for 10,000 Jobs one in 200 s; sooner if condition, failures or evictions
change."""
_Object = tuple[str, bytes]
_ORDERED = {QUEUE_STATE.name, CREDIT.name}


class JobRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One Job."""

    job: str
    """NAMESPACE/NAME."""
    condition: str
    severity: Severity
    """The worst of its findings."""
    of: int | None
    """Required completions; None: not fixed."""
    active: int
    succeeded: int
    failed: int
    evictions: int
    lost_core_s: int
    place: str
    """Position of the status record."""
    observed_ms: int
    logged_ms: int


def job_row(one: Logged[JobStatus]) -> JobRow:
    """Return the row of a status."""
    status = one.body
    job = explain_job((one,), status.namespace, status.name, one.place.logged_ms)
    assert job is not None  # callers pass existing Jobs only
    return JobRow(
        job=f"{status.namespace}/{status.name}",
        condition=condition(status),
        severity=min((each.severity for each in job.findings), key=WORST_FIRST.index, default="ok"),
        of=None if status.spec is None else status.spec.completions,
        active=status.active,
        succeeded=status.succeeded,
        failed=status.failed,
        evictions=status.evictions,
        lost_core_s=round(status.lost_core_ms / 1_000),
        place=str(one.place),
        observed_ms=status.observed_ms,
        logged_ms=one.place.logged_ms,
    )


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Held:
    """Records of some topics at one moment. The object is replaced on change."""

    records: Sequence[Record]


class Latest:
    """Current objects. One thread writes, others read.

    ``stored``: known objects are in the store, except statuses that were not due.
    """

    def __init__(self, *, stored: bool = False) -> None:
        self._stored = stored
        self.rows: dict[bytes, JobRow] = {}
        self.versions: list[Version] = []
        """Versions to store with the current minute."""
        self._held: dict[_Object, Record] = {}
        self._kept: dict[_Object, tuple[int, object]] = {}
        """The time and kind of the last kept version."""
        self._unkept: set[_Object] = set()
        """Objects whose newest version is not kept."""
        self._asked: dict[tuple[str, ...], Held] = {}

    def take(self, record: Record, *, known: bool = False) -> None:
        """Add the next record of its partition. A tombstone deletes the key's object.

        A known record may be stored already. It is kept at the minute's end, where duplicates are harmless.

        Raises:
            BadMessageError: it is invalid; the former object stays.
        """
        one, gone, is_job = (record.topic, record.key or b""), record.value is None, record.topic == JOB_STATUS.name
        body = None if gone else _READ[record.topic](record)
        held = self._held.get(one)
        if body is not None and held is not None and record.topic in _ORDERED and _turn(record) < _turn(held):
            return  # a former leader wrote it late: the highest epoch, and turn or number, wins
        self._held.pop(one, None)  # keep Kafka's order
        if not gone:
            self._held[one] = record
        if isinstance(body, JobStatus):
            self.rows[one[1]] = job_row(Logged(body=body, place=place_of(record)))
        elif is_job:
            self.rows.pop(one[1], None)
        self._asked = {topics: held for topics, held in self._asked.items() if record.topic not in topics}
        before = self._kept.get(one)
        if known and self._stored and not gone and not is_job:
            self._kept[one] = record.timestamp_ms, self._standing(one, record)
        elif known:
            self._unkept.add(one)
        elif before is None or gone or before[1] != self._standing(one, record):
            self._keep(one, record)
        elif is_job:  # once per span, others on each change
            if record.timestamp_ms - before[0] >= self._span_ms:
                self._keep(one, record)
            else:
                self._unkept.add(one)

    def of(self, *topics: Topic) -> Held:
        """Return the objects of these topics."""
        names = tuple(topic.name for topic in topics)
        held = self._asked.get(names)
        if held is None:
            held = self._asked[names] = Held([one for one in list(self._held.values()) if one.topic in names])
        return held

    def one(self, topic: Topic, key: bytes) -> Record | None:
        """Return one object; None: it does not exist."""
        return self._held.get((topic.name, key))

    def full(self, now_ms: int) -> list[Version]:
        """End the minute: its versions, oldest first."""
        for one in list(self._unkept):
            record = self._held.get(one)
            if record is None or now_ms - self._kept.get(one, (0, None))[0] >= self._span_ms:
                self._unkept.discard(one)
                if record is not None:
                    self._keep(one, record)
        versions, self.versions = self.versions, []
        return sorted(versions, key=lambda one: one.at_ms)

    def _keep(self, one: _Object, record: Record) -> None:
        self._unkept.discard(one)
        if record.value is None:
            self._kept.pop(one, None)
            self.versions.append(Version(*one, record.timestamp_ms, None))
            return
        self._kept[one] = record.timestamp_ms, self._standing(one, record)
        row = self.rows.get(one[1]) if record.topic == JOB_STATUS.name else None
        packed = None if row is None else msgspec.msgpack.encode(row)
        self.versions.append(Version(*one, record.timestamp_ms, record, packed))

    def _standing(self, one: _Object, record: Record) -> object:
        if record.topic == JOB_STATUS.name:
            row = self.rows[one[1]]
            return row.condition, row.failed, row.evictions
        if record.topic == CREDIT.name:  # a renewal changes nothing else
            lease = decode(record.value, EvictionCredit)
            return lease.boot_id, lease.granted, lease.spared_namespaces
        if record.topic == SERVICE_PROFILE.name:  # each minute moves the other figures a little
            profile = decode(record.value, ServiceProfile)
            return profile.status, profile.signal, profile.published
        return record.value

    @property
    def _span_ms(self) -> int:
        return max(KEEP_MS_MIN, KEEP_MS_PER_JOB * len(self.rows))


def _turn(record: Record) -> tuple[int, int]:
    if record.topic == CREDIT.name:
        lease = decode(record.value, EvictionCredit)
        return lease.epoch, lease.number
    state = decode(record.value, QueueState)
    return state.epoch, state.turn


_READ: Mapping[str, Callable[[Record], object]] = {
    JOB_STATUS.name: lambda record: decode(record.value, JobStatus),
    QUEUE_SPEC.name: object_of,
    QUEUE_WORKLOAD.name: workload_of,
    QUEUE_STATE.name: _turn,
    CREDIT.name: _turn,
    SERVICE_PROFILE.name: lambda record: decode(record.value, ServiceProfile),
}
