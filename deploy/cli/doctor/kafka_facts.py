"""Queries Kafka and its topics, and tries the login of each part with its own file. It writes nothing."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.doctor.facts import KafkaFacts, LoginFacts, Newest, NoKafka
from slacktide.deploy.cli.explain.log import opened
from slacktide.deploy.cli.topic_plan import changes
from slacktide.deploy.runtime.broker import EMBEDDED
from slacktide.schemas.access import ADMINISTRATOR, IN_THE_LOOP, Part
from slacktide.schemas.connection import TOKEN_URL, Cluster, Security, parse
from slacktide.schemas.errors import ConfigError, LogError, RightsError
from slacktide.schemas.topics import INVENTORY, POLICY, SAMPLE, STAMPED, TIMESTAMP_TYPE, TOPICS
from slacktide.streams.analysis.explain.evidence import Finding
from slacktide.streams.analysis.explain.figures import freshness_findings
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.kafka import TopicState, describe_topics, read_topic
from slacktide.streams.kafka.admin import creation_trouble
from slacktide.streams.kafka.connecting import tls
from slacktide.streams.kafka.probe import lacking, probe

LATELY_MS = 60_000
FILE, TOKEN = "kafka.conf", "token"
MOUNTED = "/etc/slacktide/kafka"
"""The folder with each part's file and the files that it names."""


async def gather_kafka(bootstrap: Cluster, *, to_create: bool = False) -> KafkaFacts | NoKafka:
    """Query the cluster and its topics; ``to_create``: also whether missing topics could be created."""
    try:
        cluster = await probe(bootstrap)
        topics: dict[str, TopicState] | None = None
        with suppress(RightsError):  # the user may not see all
            topics = await describe_topics(bootstrap, [topic.name for topic in TOPICS])
        differing = None if topics is None else changes(TOPICS, topics, cluster.brokers)
        missing = [topic for topic in TOPICS if topics is not None and topic.name not in topics]
        asks = to_create and not cluster.id.startswith(EMBEDDED)  # which would create them
        trouble = (await creation_trouble(bootstrap, missing) if missing else "") if asks else None
        newest = await _newest(bootstrap, topics or {})
    except LogError as error:
        return NoKafka(bootstrap=bootstrap, trouble=str(error))
    return KafkaFacts(
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


async def node_freshness(bootstrap: Cluster, name: str) -> list[Finding] | None:
    """Return findings about the freshness of a node's records; None: Kafka has none, or does not answer."""
    now_ms = SystemClock().wall_ms()
    try:
        async with opened(bootstrap, now_ms) as asked:
            found = node_log(name, (await asked.node(name, now_ms - LATELY_MS)).records)
    except LogError:
        return None
    return list(freshness_findings(found, now_ms)) if found.sample or found.metric else None


async def _newest(bootstrap: Cluster, topics: Mapping[str, TopicState]) -> Newest | None:
    """Return the newest record of a continuously written topic, else of an occasionally written one."""
    for topic in (SAMPLE, INVENTORY, POLICY):
        state = topics.get(topic.name)
        last = {} if state is None else {part: end - 1 for part, end in state.end.items() if end > state.begin[part]}
        if state is not None and last:
            async with aclosing(read_topic(bootstrap, topic.name, start=last)) as reading:
                stamps = [record.timestamp_ms async for record in reading]
            if stamps:
                by_broker = state.config.get(TIMESTAMP_TYPE) == STAMPED
                return Newest(topic=topic.name, timestamp_ms=max(stamps), by_broker=by_broker)
    return None


async def gather_logins(addresses: str, folder: Path) -> list[LoginFacts]:
    """Try all parts that have a folder of their name here, concurrently.

    Args:
        addresses: addresses of Kafka brokers.
        folder: has each part's copy of ``/etc/slacktide/kafka``, and a ``token`` for a login by token.
    """
    there = [part for part in (*IN_THE_LOOP, ADMINISTRATOR) if (folder / part.name).is_dir()]
    return await asyncio.gather(*(_login(addresses, folder / part.name, part) for part in there))


async def _login(addresses: str, folder: Path, part: Part) -> LoginFacts:
    try:
        security = _security(folder)
        if security.token_url and not (folder / TOKEN).is_file():
            return LoginFacts(part=part.name, security=security, tried=False)
        lacks = await lacking(Cluster(addresses, security), part)
    except (ConfigError, LogError) as exc:
        return LoginFacts(part=part.name, trouble=str(exc))
    except OSError as exc:
        return LoginFacts(part=part.name, trouble=f"{folder / FILE}: {exc.strerror}")
    return LoginFacts(part=part.name, security=security, lacks=lacks)


def _security(folder: Path) -> Security:
    """Read the settings as the part does, with the files that they name in this folder."""
    text = (folder / FILE).read_text(errors="replace").replace(f"{MOUNTED}/", f"{folder}/")
    security = parse(text, str(folder / FILE), {})
    if security.encrypted:
        tls(security)
    if security.token_url and (folder / TOKEN).is_file():
        return replace(security, token_url=f"{TOKEN_URL}{(folder / TOKEN).absolute()}")
    return security
