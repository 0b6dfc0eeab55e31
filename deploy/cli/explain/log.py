"""Reads the records that an explanation needs, within seconds. Raises LogError if Kafka cannot be read."""

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from slacktide.schemas.connection import Cluster, options
from slacktide.schemas.descheduling import DeschedulingPass
from slacktide.schemas.errors import LogError
from slacktide.schemas.forecast import FORECAST_STALE_MS
from slacktide.schemas.gang import GangPlan
from slacktide.schemas.heartbeat import RESERVED, is_heartbeat
from slacktide.schemas.missed_pod import MissedPod, RefusedPod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    DESCHEDULING,
    FORECAST,
    GANG_PLAN,
    INVENTORY,
    JOB_STATUS,
    METRIC,
    MISSED_POD,
    OUTCOME,
    PLACEMENT,
    POLICY,
    QUEUE_SPEC,
    QUEUE_STATE,
    QUEUE_WORKLOAD,
    REFUSED_POD,
    SAMPLE,
    SCORE,
    SERVICE_PROFILE,
    SERVICE_SLOPE,
    Topic,
)
from slacktide.streams.analysis.explain.carried_out import LATELY_MS
from slacktide.streams.analysis.explain.evictions import looks
from slacktide.streams.analysis.explain.evidence import Finding, by_key, logged
from slacktide.streams.analysis.explain.gang import last_of_gang
from slacktide.streams.analysis.explain.node_log import NodeLog, covered_of, node_log
from slacktide.streams.analysis.explain.pod import PodLog, last_placement, last_refused, where_is
from slacktide.streams.kafka import (
    TAIL_RECORDS_MAX,
    WHOLE,
    Place,
    Read,
    Tail,
    partition_counts,
    partition_of,
    places_of,
)
from slacktide.streams.records import Record

FETCH_WAIT_MS = 5
STATUS_LATELY_MS = 60_000
"""The status of an active Job is usually republished within this time."""
NODE_TOPICS = (SAMPLE, INVENTORY, FORECAST, POLICY, METRIC, ALLOCATABLE, SCORE, COMMAND, OUTCOME)
TOPICS = (*NODE_TOPICS, PLACEMENT, GANG_PLAN, DESCHEDULING, MISSED_POD, REFUSED_POD)
FIGURES = (METRIC, ALLOCATABLE, SCORE)
NEWEST_MS = 36_000
"""Samples arrive each second, figures at least every 30 s."""
LISTED_NODES_MAX = 1_000
"""Of more nodes, no pod lists are read for the overview: a minute of samples would take long."""
MISSED_MS = 7 * 24 * 3_600_000
"""A missed pod stays unchanged while it runs: the retention of the topic."""
_POD, _PODS, _PRESSURE = b'"pod":{', b'"pods":[', b'"pod_pressure":['


@asynccontextmanager
async def reading(bootstrap: Cluster, topics: Sequence[Topic]) -> AsyncIterator[tuple[Tail, Mapping[str, int]]]:
    """Connect, and return the partition counts. Raises LogError if Kafka is unavailable, or a topic is missing."""
    partitions = await partition_counts(bootstrap, [topic.name for topic in topics])
    if absent := [name for name, count in partitions.items() if not count]:
        do = f"slacktide topics apply {options(bootstrap)}"
        raise LogError(f"{bootstrap}: these topics do not exist: {', '.join(absent)}; create them: {do}")
    async with Tail(bootstrap, FETCH_WAIT_MS, most=TAIL_RECORDS_MAX) as tail:
        yield tail, partitions


async def job_statuses(bootstrap: Cluster, namespace: str, name: str, now_ms: int) -> list[Record]:
    """Read the statuses of a Job by name, including deleted ones. Recent records suffice for an active Job."""
    named = f'"namespace":"{namespace}","name":"{name}",'.encode()

    def wanted(record: Record) -> bool:
        return record.value is None or named in record.value

    async with reading(bootstrap, (JOB_STATUS,)) as (tail, partitions):
        lately = await tail.read(places_of(partitions, {JOB_STATUS.name: now_ms - STATUS_LATELY_MS}), wanted)
        if any(record.value is not None for record in lately.records):
            return lately.records
        return (await tail.read(places_of(partitions, {JOB_STATUS.name: WHOLE}), wanted)).records


async def queue_of(bootstrap: Cluster) -> list[Record]:
    """Return all specs, workloads and states of the queue; empty without its topics."""
    topics = (QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE)
    partitions = await partition_counts(bootstrap, [topic.name for topic in topics])
    if not all(partitions.values()):
        return []
    async with Tail(bootstrap, FETCH_WAIT_MS) as tail:
        return (await tail.read(places_of(partitions, {topic.name: WHOLE for topic in topics}))).records


async def service_records(bootstrap: Cluster, service: str = "") -> list[Record]:
    """Return the policy, profiles and published slopes; ``service``: of this one only. Deleted ones are included."""
    key = service.encode()

    def wanted(record: Record) -> bool:
        return not key or record.topic == POLICY.name or record.key == key

    topics = (POLICY, SERVICE_SLOPE, SERVICE_PROFILE)
    async with reading(bootstrap, topics) as (tail, partitions):
        places = places_of(partitions, {topic.name: WHOLE for topic in topics})
        if service:
            mine = partition_of(service, partitions[SERVICE_PROFILE.name])
            for number in set(range(partitions[SERVICE_PROFILE.name])) - {mine}:
                del places[SERVICE_PROFILE.name, number]
        return (await tail.read(places, wanted)).records


async def nodes_of_owner(bootstrap: Cluster, namespace: str, owner: str, now_ms: int) -> list[str]:
    """Return the nodes whose recent pod lists have a pod of this controller."""
    named = f'"owner":"{owner}"'.encode()

    def wanted(record: Record) -> bool:
        value = record.value or b""
        return _PODS in value and named in value

    async with reading(bootstrap, (SAMPLE,)) as (tail, partitions):
        read = await tail.read(places_of(partitions, {SAMPLE.name: now_ms - LISTED_MS}), wanted)
    logs = [node_log(name, records) for name, records in by_key(read.records, SAMPLE).items()]
    return sorted(one.node for one in logs if any((pod.namespace, pod.owner) == (namespace, owner) for pod in one.pods))


async def records_since(bootstrap: Cluster, topic: Topic, since_ms: int) -> list[Record]:
    """Read a topic's records since a time; 0: all."""
    async with reading(bootstrap, (topic,)) as (tail, partitions):
        return (await tail.read(places_of(partitions, {topic.name: since_ms}))).records


class Lately:
    """Chooses the recent records of all nodes, and keeps the newest older sample with a pod list of each."""

    def __init__(self, lately_ms: int) -> None:
        self._lately_ms = lately_ms
        self.lists: dict[bytes | None, Record] = {}

    def wants(self, record: Record) -> bool:
        """Return whether a record is recent."""
        if record.timestamp_ms >= self._lately_ms:
            return True
        if record.topic == SAMPLE.name and _PODS in (record.value or b""):
            self.lists[record.key] = record
        return False


@dataclass(frozen=True, slots=True)
class Log:
    """A connection, and the partition counts of topics."""

    bootstrap: Cluster
    tail: Tail
    partitions: Mapping[str, int]
    now_ms: int

    async def node(self, name: str, since_ms: int) -> Read:
        """Read one node's newest records, and its outcomes since that time."""
        mine = {topic.name: partition_of(name, self.partitions[topic.name]) for topic in NODE_TOPICS}
        mine[POLICY.name] = 0
        at = {topic: (topic.name, mine[topic.name]) for topic in NODE_TOPICS}
        latest_ms = self.now_ms - NEWEST_MS
        listed_ms = self.now_ms - LISTED_MS  # keyframes are further apart than a short span
        key = name.encode()

        def wanted(record: Record) -> bool:
            return record.key == key or record.topic == POLICY.name or is_heartbeat(record.key)

        read = await self.tail.read(
            {at[INVENTORY]: WHOLE, at[POLICY]: WHOLE, at[OUTCOME]: since_ms}
            | {at[topic]: latest_ms for topic in (*FIGURES, COMMAND)}
            | {at[SAMPLE]: listed_ms, at[FORECAST]: self.now_ms - FORECAST_STALE_MS},
            wanted,
        )
        there = {record.topic for record in read.records}
        if {METRIC.name, ALLOCATABLE.name, SAMPLE.name} <= there:
            return read
        more = await self.tail.read(
            {at[topic]: WHOLE for topic in FIGURES}
            | {at[topic]: min(since_ms, listed_ms) for topic in (SAMPLE, COMMAND)},
            wanted,
        )
        once = {topic.name for topic in (INVENTORY, POLICY, OUTCOME, FORECAST)}
        kept = [record for record in read.records if record.topic in once]
        return Read(records=[*kept, *more.records], short=[*read.short, *more.short])

    async def figures(self) -> list[Record]:
        """Return the latest figures of all nodes; further back for known nodes without recent ones."""
        whole = await self.tail.read(self._all((INVENTORY, POLICY), WHOLE))
        lately = await self.tail.read(self._all(FIGURES, self.now_ms - NEWEST_MS))
        if by_key(lately.records, ALLOCATABLE).keys() >= by_key(whole.records, INVENTORY).keys() != set():
            return [*whole.records, *lately.records]
        older = await self.tail.read(self._all(FIGURES, WHOLE))
        return [*whole.records, *older.records]

    async def keyframes(self, nodes: Collection[str]) -> list[Record]:
        """Read recent samples of these nodes with their pods, or with pressure of these, and forecasts."""
        keys = {name.encode() for name in nodes}
        listed_ms, forecast_ms = self.now_ms - LISTED_MS, self.now_ms - FORECAST_STALE_MS
        since_ms = {SAMPLE: listed_ms, FORECAST: forecast_ms}
        places = {
            (topic.name, partition_of(name, self.partitions[topic.name])): begin_ms
            for topic, begin_ms in since_ms.items()
            for name in nodes
        }

        def wanted(record: Record) -> bool:
            value = record.value or b""
            return record.key in keys and (_PODS in value or _PRESSURE in value)

        return (await self.tail.read(dict(sorted(places.items())), wanted)).records

    async def listing(self, name: str) -> set[str]:
        """Return the nodes whose recent keyframes have a pod of this name."""
        named = f'"name":"{name}"'.encode()

        def wanted(record: Record) -> bool:
            value = record.value or b""
            return _PODS in value and named in value

        read = await self.tail.read(self._all((SAMPLE,), self.now_ms - LISTED_MS), wanted)
        return set(by_key(read.records, SAMPLE))

    async def lately(self, *, lists: bool) -> list[Record]:
        """Read all nodes' recent samples, commands and outcomes; ``lists``: and their newest pod lists."""
        lately_ms = self.now_ms - LATELY_MS
        samples = self._all((SAMPLE,), self.now_ms - LISTED_MS if lists else lately_ms)
        chosen = Lately(lately_ms)
        read = await self.tail.read(self._all((COMMAND, OUTCOME), lately_ms) | samples, chosen.wants)
        return [*chosen.lists.values(), *read.records]

    async def since(self, topic: Topic, since_ms: int, wanted: Callable[[Record], bool] | None = None) -> Read:
        """Read the wanted records of a topic, of all nodes, since that time."""
        return await self.tail.read(self._all((topic,), since_ms), wanted)

    async def node_names(self) -> set[str]:
        """Return the nodes with an inventory or figures."""
        return _names(await self.figures())

    def _all(self, topics: Iterable[Topic], since_ms: int | None) -> dict[tuple[str, int], int | None]:
        return {(topic.name, number): since_ms for topic in topics for number in range(self.partitions[topic.name])}


async def node_logs(log: Log) -> list[NodeLog]:
    """Read each node's latest figures, and its recent records."""
    figures = await log.figures()
    names, covered = _names(figures), covered_of(figures)
    lately = await log.lately(lists=len(names) <= LISTED_NODES_MAX)
    records = [*figures, *lately]
    of_all = [record for record in records if record.topic == POLICY.name]
    by_topic = {topic: by_key(records, topic) for topic in (INVENTORY, OUTCOME, COMMAND, SAMPLE, *FIGURES)}
    names |= {name for topic in (OUTCOME, SAMPLE) for name in by_topic[topic]}
    return [
        node_log(name, [*of_all, *(one for some in by_topic.values() for one in some.get(name, ()))], covered)
        for name in sorted(names)
    ]


async def pod_log(log: Log, namespace: str, name: str, span_ms: int) -> tuple[PodLog, list[Place]]:
    """Return a pod's records: all nodes' figures, its node's newest samples, placements, and outcomes about pods."""
    records = await log.figures()
    names, covered = _names(records), covered_of(records)
    of_all = [record for record in records if record.topic == POLICY.name]
    by_name: dict[str, list[Record]] = {key: list(of_all) for key in names}
    for topic in (INVENTORY, *FIGURES):
        for key, some in by_key(records, topic).items():
            if key in names:
                by_name[key] += some
    nodes = [one for one in (node_log(key, by_name[key], covered) for key in sorted(names)) if one.known]
    there = where_is(nodes, namespace, name)
    if there is not None:
        on: NodeLog | None = node_log(there[0].node, await log.keyframes([there[0].node]))
    else:
        on = None
        for listing in sorted(await log.listing(name)):  # the newest pod list has the pod before its figures do
            found_on = node_log(listing, await log.keyframes([listing]))
            if any((pod.namespace, pod.name) == (namespace, name) for pod in found_on.pods):
                on = found_on
                break
        if without_score := [one.node for one in nodes if one.score is None]:  # its requests are unknown
            keyframes = await log.keyframes(without_score)
            nodes = [replace(one, samples=node_log(one.node, keyframes).samples) for one in nodes]
    since_ms = log.now_ms - span_ms
    named, of_namespace = f'"name":"{name}"'.encode(), namespace.encode()

    def names_it(record: Record) -> bool:
        return named in (record.value or b"")

    outcomes = await log.since(OUTCOME, since_ms, lambda record: _POD in (record.value or b""))
    placements = await log.since(PLACEMENT, since_ms, names_it)
    passes = await log.since(DESCHEDULING, since_ms)
    missed = await log.since(MISSED_POD, log.now_ms - MISSED_MS, names_it)
    refused = await log.since(REFUSED_POD, since_ms, lambda record: record.key == of_namespace)
    plans = await log.since(GANG_PLAN, since_ms, lambda record: of_namespace in (record.key or b""))
    every_missed = (one.body for one in logged(missed.records, MISSED_POD, MissedPod))
    mine = [one for one in every_missed if (one.namespace, one.name) == (namespace, name)]
    found = PodLog(
        nodes=nodes,
        on=on,
        outcomes=logged(outcomes.records, OUTCOME, NodeOutcome),
        span_ms=span_ms,
        placement=last_placement(logged(placements.records, PLACEMENT, PodPlacement), namespace, name),
        missed=max(mine, key=lambda one: one.found_ms, default=None),
        gang=last_of_gang(logged(plans.records, GANG_PLAN, GangPlan), namespace, name),
        refused=last_refused(logged(refused.records, REFUSED_POD, RefusedPod), name),
        looks=looks(logged(passes.records, DESCHEDULING, DeschedulingPass), namespace, name),
    )
    return found, [*outcomes.short, *placements.short, *passes.short]


def _names(records: Sequence[Record]) -> set[str]:
    """Return the nodes with an inventory or figures."""
    found = {name for topic in (INVENTORY, *FIGURES) for name in by_key(records, topic)}
    return {name for name in found if not name.startswith(RESERVED)}


def shortened(places: Iterable[Place]) -> list[Finding]:
    """Report topics that were too long to read."""
    return [
        Finding(
            name="log.short",
            text=f"only the newest {TAIL_RECORDS_MAX:,} records of {topic} partition {partition} were read",
            advice="give a smaller --since to read fewer records",
        )
        for topic, partition in places
    ]


@asynccontextmanager
async def opened(bootstrap: Cluster, now_ms: int) -> AsyncIterator[Log]:
    """Connect. Raises LogError if Kafka is unavailable, or a topic is missing."""
    async with reading(bootstrap, TOPICS) as (tail, partitions):
        yield Log(bootstrap=bootstrap, tail=tail, partitions=partitions, now_ms=now_ms)
