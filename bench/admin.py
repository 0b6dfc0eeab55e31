"""Topics beside the product's own, and settings that only a measurement needs."""

import asyncio
from collections.abc import Mapping, Sequence

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from slacktide.schemas.topics import NODE_PARTITIONS, Topic

STAMPED_BY_LOG = {"message.timestamp.type": "LogAppendTime"}
"""A record's time is when the log took it."""
BOUNDED = {"retention.bytes": str(64 << 20), "segment.bytes": str(16 << 20), "cleanup.policy": "delete"}
"""Per partition: a long run keeps only its end."""


def create(bootstrap: str, name: str) -> None:
    """A topic with as many partitions as the samples'."""

    async def work(admin: AIOKafkaAdminClient) -> None:
        await admin.create_topics([NewTopic(name, NODE_PARTITIONS, 1)])

    _administer(bootstrap, work)


def delete(bootstrap: str, names: Sequence[str]) -> None:
    """Lose topics and what is in them."""

    async def work(admin: AIOKafkaAdminClient) -> None:
        await admin.delete_topics(list(names))

    _administer(bootstrap, work)


def set_up(bootstrap: str, topics: Sequence[Topic], more: Mapping[str, str]) -> None:
    """Give some of the product's topics further settings."""
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, topic.name, configs={**topic.config(1), **more}) for topic in topics
    ]

    async def work(admin: AIOKafkaAdminClient) -> None:
        for answer in await admin.alter_configs(resources):
            refused = [(name, why) for code, why, _, name in answer.resources if code]
            assert not refused, refused

    _administer(bootstrap, work)


def _administer(bootstrap: str, work) -> None:
    async def administer() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            await admin.start()
            await work(admin)
        finally:
            await admin.close()

    asyncio.run(administer())
