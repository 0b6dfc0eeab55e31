"""Accounts a span of records, in hours, percent and milliseconds. Offset ranges identify its input. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from slacktide.schemas.bounds import Count
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import DESCHEDULER, QUEUE
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.knob import uid_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.sample_columns_codec import UnknownPodsError
from slacktide.schemas.topics import OUTCOME, SAMPLE
from slacktide.streams.analysis.savings.node import PRESSURES, Harm, Level, NodeAccount, Tally, Use
from slacktide.streams.records import Place, Record, text_of
from slacktide.streams.samples import SampleReader

HOUR_MS = 3_600_000
CORE_H, GIB_H = 1_000 * HOUR_MS, 2**30 * HOUR_MS
"""Millicore-milliseconds per core-hour, byte-milliseconds per GiB-hour."""
VERSION = 1


class Range(msgspec.Struct, kw_only=True):
    """The range read of one partition."""

    topic: str
    partition: Count
    first_offset: Count
    last_offset: Count
    records: Count
    first_ms: int
    """Record timestamps; not monotonic where producers set them."""
    last_ms: int


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One resource, in core-hours or GiB-hours: ``gained = used - admitted`` and ``net = gained - lost``."""

    used: float
    admitted: float
    gained: float
    gained_least: float
    gained_most: float
    lost: float
    net: float
    net_least: float
    """The rest of ``gained_least``, if evicted pods lost all their work."""
    net_most: float
    """The rest of ``gained_most``, if evicted pods lost no work."""
    room_left: float
    """Room for native requests minus the requests of best-effort pods."""


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """PSI of the node over 10 s, percent; None: unknown."""

    mean_pct: float | None
    max_pct: float | None


class Suffered(msgspec.Struct, frozen=True, kw_only=True):
    """Pods outside the best-effort cgroup during a part of the time."""

    hours: float
    ls_throttled_pct: float | None
    """The throttled percentage of their CFS periods; None: no pod has a limit."""
    ls_stall_pct: float | None
    """Time in which one of their processes waited for CPU, by PSI; None: the policy does not use pressure."""
    cpu_some: Pressure
    mem_some: Pressure
    mem_full: Pressure
    io_some: Pressure
    io_full: Pressure


class Ages(msgspec.Struct, frozen=True, kw_only=True):
    """Monotonic time from a sample to the confirmed write: nearest-rank percentiles, milliseconds."""

    acts: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None
    max_ms: int | None


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """One node, or all."""

    node: str
    samples: int
    undecided: int
    """Samples that were not counted: facts, pods or allocatable are unknown."""
    covered_h: float
    """Node-hours covered by samples."""
    cpu: Saved
    """Core-hours."""
    mem: Saved
    """GiB-hours."""
    evictions: int
    restarts: int
    busy: Suffered
    """While best-effort pods used at least 1% of allocatable CPU."""
    idle: Suffered
    """The rest of the time."""
    limits: Ages
    evicting: Ages


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The complete report. ``read`` identifies its input."""

    version: int = VERSION
    since_ms: int
    until_ms: int
    all: NodeReport
    nodes: Sequence[NodeReport]
    only: Sequence[str]
    """The selected nodes; empty: all."""
    read: Sequence[Range]
    refused: int
    """Invalid records."""
    unproven: int
    """Samples that failed the node proof."""


class Span(NamedTuple):
    """The selection: UTC epoch milliseconds, end exclusive; no nodes: all."""

    since_ms: int
    until_ms: int
    nodes: tuple[str, ...] = ()


def report(tallies: Mapping[str, Tally], span: Span, read: Sequence[Range], *, refused: int, unproven: int) -> Report:
    """Convert sums to units."""
    everything = Tally()
    for tally in tallies.values():
        everything.add(tally)
    return Report(
        since_ms=span.since_ms,
        until_ms=span.until_ms,
        only=span.nodes,
        all=_node("all", everything),
        nodes=[_node(name, tally) for name, tally in tallies.items()],
        read=read,
        refused=refused,
        unproven=unproven,
    )


def _node(name: str, tally: Tally) -> NodeReport:
    return NodeReport(
        node=name,
        samples=tally.samples,
        undecided=tally.undecided,
        covered_h=tally.covered_ms / HOUR_MS,
        cpu=_saved(tally.cpu, CORE_H),
        mem=_saved(tally.mem, GIB_H),
        evictions=tally.evictions,
        restarts=tally.restarts,
        busy=_suffered(tally.busy),
        idle=_suffered(tally.idle),
        limits=_ages(tally.limit_ages_ms),
        evicting=_ages(tally.eviction_ages_ms),
    )


def _saved(use: Use, unit: int) -> Saved:
    gained, least, most = (use.used - part for part in (use.admitted_likely, use.admitted_most, use.admitted_least))
    return Saved(
        used=use.used / unit,
        admitted=use.admitted_likely / unit,
        gained=gained / unit,
        gained_least=least / unit,
        gained_most=most / unit,
        lost=use.lost / unit,
        net=(gained - use.lost) / unit,
        net_least=(least - use.lost) / unit,
        net_most=most / unit,
        room_left=use.room_left / unit,
    )


def _suffered(harm: Harm) -> Suffered:
    return Suffered(
        hours=harm.time_ms / HOUR_MS,
        ls_throttled_pct=100 * harm.ls_throttled / harm.ls_periods if harm.ls_periods else None,
        ls_stall_pct=100 * harm.ls_stall_us / harm.look_us if harm.look_us else None,
        **{name: _pressure(getattr(harm, name)) for name in PRESSURES},
    )


def _pressure(level: Level) -> Pressure:
    if not level.time_ms:
        return Pressure(mean_pct=None, max_pct=None)
    return Pressure(mean_pct=level.weighted / level.time_ms / 100, max_pct=level.level_max / 100)


def _ages(ages_ms: Counter[int]) -> Ages:
    acts = ages_ms.total()
    if not acts:
        return Ages(acts=0, p50_ms=None, p95_ms=None, p99_ms=None, max_ms=None)
    values = sorted(ages_ms)
    up_to = list(accumulate(ages_ms[value] for value in values))
    p50, p95, p99 = (values[bisect_left(up_to, -(-acts * percent // 100))] for percent in (50, 95, 99))
    return Ages(acts=acts, p50_ms=p50, p95_ms=p95, p99_ms=p99, max_ms=values[-1])


SOURCES = frozenset({SAMPLE.name, OUTCOME.name})
"""Topics that an account needs."""


class Offsets:
    """Notes each record, and finds duplicates."""

    def __init__(self) -> None:
        self._ranges: dict[Place, Range] = {}

    def note(self, record: Record) -> bool:
        """Return whether the record is new; files may overlap."""
        known = self._ranges.get(record.place)
        if known is None:
            self._ranges[record.place] = Range(
                topic=record.topic,
                partition=record.partition,
                first_offset=record.offset,
                last_offset=record.offset,
                records=1,
                first_ms=record.timestamp_ms,
                last_ms=record.timestamp_ms,
            )
            return True
        # A recreated topic starts at 0 again, with later times.
        if record.offset <= known.last_offset and record.timestamp_ms <= known.last_ms:
            return False
        known.last_offset, known.last_ms = record.offset, record.timestamp_ms
        known.records += 1
        return True

    def ranges(self) -> list[Range]:
        """Return the ranges by topic and partition."""
        return [self._ranges[place] for place in sorted(self._ranges)]


class Within:
    """The ranges of an earlier account."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges = {Place(one.topic, one.partition): one for one in ranges}

    def holds(self, record: Record) -> bool:
        """Return whether the record is in the ranges."""
        known = self._ranges.get(record.place)
        return known is not None and known.first_offset <= record.offset <= known.last_offset


def difference(asked: Sequence[Range], found: Sequence[Range]) -> str:
    """Return which records of an earlier account are gone; "": none."""
    by_place = {(one.topic, one.partition): one for one in found}
    for one in asked:
        here = by_place.get((one.topic, one.partition))
        if here is None:
            return f"{_span(one)} are gone"
        if (one.first_offset, one.last_offset, one.records) != (here.first_offset, here.last_offset, here.records):
            return f"{_span(one)} were {one.records} records; only {_span(here)} are here, {here.records} records"
    return ""


def _span(one: Range) -> str:
    return f"{one.topic} {one.partition}:{one.first_offset}-{one.last_offset}"


class Account:
    """Accounts the records of a span. Records are added by time, those of a partition by offset."""

    def __init__(self, span: Span, within: Within | None = None) -> None:
        """Account the records within ``within`` (None: all). Samples before the span are read for pods and facts."""
        self._span = span
        self._keys = {node.encode() for node in (*span.nodes, DESCHEDULER)} if span.nodes else set()
        self._within = within
        self._samples = SampleReader()
        self._nodes: dict[str, NodeAccount] = {}
        self._offsets = Offsets()
        self._refused = 0

    def take(self, record: Record) -> None:
        """Add the next record. Records outside of the span change nothing."""
        early_ms = self._span.since_ms - (0 if record.topic == OUTCOME.name else LISTED_MS)
        wanted = (
            record.topic in SOURCES
            and early_ms <= record.timestamp_ms < self._span.until_ms
            and (not self._keys or record.key in self._keys)
            and (self._within is None or self._within.holds(record))
        )
        if not wanted or not self._offsets.note(record):
            return
        try:
            if record.topic == OUTCOME.name:
                self._outcome(record)
            else:
                self._sample(record)
        except BadMessageError:
            self._refused += 1  # a reader of the topic sends it to the dead letters

    def finish(self, unproven: int = 0) -> Report:
        """Return the report; ``unproven``: samples that were left out before."""
        tallies = {node: account.tally for node, account in sorted(self._nodes.items())}
        return report(tallies, self._span, self._offsets.ranges(), refused=self._refused, unproven=unproven)

    def tallies(self) -> dict[str, Tally]:
        """Return the sums so far, by node."""
        return {node: account.tally for node, account in self._nodes.items()}

    def _sample(self, record: Record) -> None:
        try:
            sample = self._samples.read(record)
        except UnknownPodsError as exc:  # it counts as undecided
            sample = exc.sample
        if sample.node == text_of(record.key or b""):  # not in the name of another node
            self._node(sample.node).sample(sample, counted=record.timestamp_ms >= self._span.since_ms)

    def _outcome(self, record: Record) -> None:
        outcome = decode(record.value, NodeOutcome)
        if outcome.node != text_of(record.key or b"") or outcome.node == QUEUE:
            return  # the queue names a workload, and no pod
        if outcome.node != DESCHEDULER:
            self._node(outcome.node).outcome(outcome)
        elif outcome.result == "applied":  # it names the pod, and no node
            for node in self._nodes.values():
                if node.descheduled(uid_of(outcome.target)):
                    break

    def _node(self, name: str) -> NodeAccount:
        return self._nodes.setdefault(name, NodeAccount())
