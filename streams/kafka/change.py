"""Changes settings of topics in place, and checks whether topics could be created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import Topic
from slacktide.streams.kafka.admin import REQUEST_MS, _admin, _asking, _new_topic

SET_ON_TOPIC = 1
"""Source of a setting that was made for this topic, as in the protocol."""


async def broker_count(bootstrap: Cluster, *, timeout_s: float = 10.0) -> int:
    """Return the number of brokers.

    Raises:
        LogError: the cluster is unreachable.
    """
    async with _admin(bootstrap) as admin, _asking(bootstrap, timeout_s):
        return len((await admin.describe_cluster())["brokers"])


async def creation_trouble(bootstrap: Cluster, topics: Sequence[Topic], *, timeout_s: float = 10.0) -> str:
    """Return why these topics could not be created; "": they could. The broker only validates.

    Raises:
        LogError: the cluster is unreachable.
    """
    async with _admin(bootstrap) as admin, _asking(bootstrap, timeout_s):
        brokers = len((await admin.describe_cluster())["brokers"])
        asked = [_new_topic(topic, min(topic.replication, brokers)) for topic in topics]
        response = await admin.create_topics(asked, timeout_ms=REQUEST_MS, validate_only=True)
        refused = ((name, text or for_code(code).__name__) for name, code, text in response.topic_errors if code)
        return next((f"{name}: {why}" for name, why in refused), "")


async def set_configs(bootstrap: Cluster, changes: Mapping[str, Mapping[str, str]], *, timeout_s: float = 10.0) -> None:
    """Set broker settings of existing topics; other settings stay.

    The request replaces all settings of a topic, so existing ones are sent again. ``changes``: new values by topic and
    setting.

    Raises:
        LogError: the broker is unreachable, or refused.
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
