"""What of a topic can be changed in place: its settings. And whether topics could be created, on how many brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import Topic
from slacktide.streams.kafka.admin import REQUEST_MS, _admin, _asking, _new_topic

SET_ON_TOPIC = 1
"""Source of a setting that was made for this topic, as the protocol numbers it."""


async def broker_count(bootstrap: Cluster, *, timeout_s: float = 10.0) -> int:
    """How many brokers the cluster has.

    Raises:
        LogError: it cannot be reached.

    """
    async with _admin(bootstrap) as admin, _asking(bootstrap, timeout_s):
        return len((await admin.describe_cluster())["brokers"])


async def creation_trouble(bootstrap: Cluster, topics: Sequence[Topic], *, timeout_s: float = 10.0) -> str:
    """Why these topics could not be created; "": they could. None is: the broker only validates.

    Raises:
        LogError: it cannot be reached.

    """
    async with _admin(bootstrap) as admin, _asking(bootstrap, timeout_s):
        brokers = len((await admin.describe_cluster())["brokers"])
        asked = [_new_topic(topic, min(topic.replication, brokers)) for topic in topics]
        response = await admin.create_topics(asked, timeout_ms=REQUEST_MS, validate_only=True)
        refused = ((name, text or for_code(code).__name__) for name, code, text in response.topic_errors if code)
        return next((f"{name}: {why}" for name, why in refused), "")


async def set_configs(bootstrap: Cluster, changes: Mapping[str, Mapping[str, str]], *, timeout_s: float = 10.0) -> None:
    """Set broker settings of existing topics; what else was set for them stays.

    The request replaces all settings of a topic, so those that were made for it are sent again.

    Args:
        bootstrap: the Kafka cluster.
        changes: per topic the settings and their new values.
        timeout_s: how long to wait in all.

    Raises:
        LogError: the broker cannot be reached or refused.

    """
    async with _admin(bootstrap) as admin, _asking(bootstrap, timeout_s):
        asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in changes]
        there: dict[str, dict[str, str]] = {name: {} for name in changes}
        for response in await admin.describe_configs(asked):
            for _, _, _, name, entries in response.resources:
                there[name] = {entry[0]: entry[1] for entry in entries if entry[3] == SET_ON_TOPIC}
        wanted = [ConfigResource(ConfigResourceType.TOPIC, name, there[name] | dict(changes[name])) for name in changes]
        for response in await admin.alter_configs(wanted):
            for code, text, _, name in response.resources:
                if code:
                    raise LogError(f"{bootstrap}: topic {name} could not be changed: {text or for_code(code).__name__}")
