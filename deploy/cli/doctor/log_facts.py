"""The log as this machine meets it. Nothing is written to it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

from slacktide.agents.clock import SystemClock
from slacktide.agents.kafka import TopicState, describe_topics, read_topic
from slacktide.agents.kafka.probe import probe
from slacktide.deploy.cli.doctor.facts import LogFacts, Newest, NoLog
from slacktide.deploy.cli.topic_plan import Change, changes
from slacktide.schemas.errors import LogError, RightsError
from slacktide.schemas.topics import INVENTORY, POLICY, SAMPLE, TOPICS


async def gather(bootstrap: str) -> LogFacts | NoLog:
    """Ask the cluster what it is and has."""
    try:
        cluster = await probe(bootstrap)
        differing, newest = await _topics(bootstrap, cluster.brokers)
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
        newest=newest,
        now_ms=SystemClock().wall_ms(),
    )


async def _topics(bootstrap: str, brokers: int) -> tuple[list[Change] | None, Newest | None]:
    try:
        topics = await describe_topics(bootstrap, [topic.name for topic in TOPICS])
        return changes(TOPICS, topics, brokers), await _newest(bootstrap, topics)
    except RightsError:
        return None, None


async def _newest(bootstrap: str, topics: Mapping[str, TopicState]) -> Newest | None:
    """The newest record of a topic that is written all the time, else of one that is written at times."""
    for topic in (SAMPLE, INVENTORY, POLICY):
        state = topics.get(topic.name)
        last = {} if state is None else {part: end - 1 for part, end in state.end.items() if end > state.begin[part]}
        if state is not None and last:
            async with aclosing(read_topic(bootstrap, topic.name, start=last)) as reading:
                stamps = [record.timestamp_ms async for record in reading]
            if stamps:
                by_broker = state.config.get("message.timestamp.type") == "LogAppendTime"
                return Newest(topic=topic.name, timestamp_ms=max(stamps), by_broker=by_broker)
    return None
