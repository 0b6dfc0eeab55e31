"""Queries Kafka from this machine. Nothing is written to it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.doctor.facts import LogFacts, Newest, NoLog
from slacktide.deploy.cli.doctor.log_checks import EMBEDDED
from slacktide.deploy.cli.explain.log import opened
from slacktide.deploy.cli.topic_plan import changes
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError, RightsError
from slacktide.schemas.topics import INVENTORY, POLICY, SAMPLES, STAMPED, TIMESTAMP_TYPE, TOPICS
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.freshness import freshness_findings
from slacktide.streams.explain.node_log import node_log
from slacktide.streams.kafka import TopicState, describe_topics, read_topic
from slacktide.streams.kafka.admin import creation_trouble
from slacktide.streams.kafka.probe import probe

LATELY_MS = 60_000


async def gather(bootstrap: Cluster, *, to_create: bool = False) -> LogFacts | NoLog:
    """Query the cluster and its topics; ``to_create``: also whether missing topics could be created."""
    try:
        cluster = await probe(bootstrap)
        topics = await _topics(bootstrap)
        differing = None if topics is None else changes(TOPICS, topics, cluster.brokers)
        missing = [topic for topic in TOPICS if topics is not None and topic.name not in topics]
        asks = to_create and cluster.id != EMBEDDED  # which would create them
        trouble = (await creation_trouble(bootstrap, missing) if missing else "") if asks else None
        newest = await _newest(bootstrap, topics or {})
    except LogError as error:
        return NoLog(bootstrap=bootstrap, trouble=str(error))
    return LogFacts(
        bootstrap=bootstrap,
        brokers=cluster.brokers,
        cluster=cluster.id,
        round_trip_ms=cluster.round_trip_ms,
        idempotence_trouble=cluster.idempotence_trouble,
        transactions=cluster.transactions,
        changes=differing,
        creation_trouble=trouble,
        newest=newest,
        now_ms=SystemClock().wall_ms(),
        settings={name: state.config for name, state in (topics or {}).items()},
    )


async def node(bootstrap: Cluster, name: str) -> list[Finding] | None:
    """Return findings about the freshness of a node's records; None: Kafka has none, or does not answer."""
    now_ms = SystemClock().wall_ms()
    try:
        async with opened(bootstrap, now_ms) as asked:
            found = node_log(name, (await asked.node(name, now_ms - LATELY_MS)).records)
    except LogError:
        return None
    return list(freshness_findings(found, now_ms)) if found.sample or found.metric else None


async def _topics(bootstrap: Cluster) -> dict[str, TopicState] | None:
    """Return the existing topics; None: the user may not see all."""
    try:
        return await describe_topics(bootstrap, [topic.name for topic in TOPICS])
    except RightsError:
        return None


async def _newest(bootstrap: Cluster, topics: Mapping[str, TopicState]) -> Newest | None:
    """Return the newest record of a continuously written topic, else of an occasionally written one."""
    for topic in (*SAMPLES, INVENTORY, POLICY):
        state = topics.get(topic.name)
        last = {} if state is None else {part: end - 1 for part, end in state.end.items() if end > state.begin[part]}
        if state is not None and last:
            async with aclosing(read_topic(bootstrap, topic.name, start=last)) as reading:
                stamps = [record.timestamp_ms async for record in reading]
            if stamps:
                by_broker = state.config.get(TIMESTAMP_TYPE) == STAMPED
                return Newest(topic=topic.name, timestamp_ms=max(stamps), by_broker=by_broker)
    return None
