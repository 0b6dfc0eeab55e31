"""Uses Kafka for the stack: creates topics, publishes the operator's files, reads first decisions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from slacktide.agents.clock import SystemClock
from slacktide.agents.publisher import Publisher, publish_files
from slacktide.deploy.cli.decisions import FirstDecisions
from slacktide.deploy.cli.operator_files import OperatorFiles
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.health import Health
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import NodeSource
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.kafka import create_topics, read_topic
from slacktide.streams.records import Record

log = logging.getLogger(__name__)

RETRY_S, RETRY_MAX_S = 1.0, 5.0


class LogSide:
    """The supervisor's access to one Kafka cluster."""

    def __init__(self, bootstrap: Cluster, node: str, node_source: NodeSource) -> None:
        self._bootstrap = bootstrap
        self._node_source = node_source
        self._node = node

    async def apply_topics(self) -> None:
        """Create missing topics; if Kafka is unavailable, the publisher does it later."""
        with contextlib.suppress(LogError):
            created = await create_topics(self._bootstrap)
            if created:
                log.info("topics created", extra={"topics": len(created)})

    async def publish(self, files: OperatorFiles, stop: asyncio.Event, health: Health) -> None:
        """Keep Kafka up to date with the files."""
        await self.apply_topics()
        publisher = Publisher(
            self._bootstrap, ensure_topics=self._ensured, now_ms=SystemClock().wall_ms, node_source=self._node_source
        )
        await publish_files(publisher, policy=files.policy, inventory=files.inventory, stop=stop, health=health)

    async def _ensured(self) -> None:
        await create_topics(self._bootstrap)

    async def first_decisions(self, since_ms: int) -> AsyncGenerator[str, None]:
        """Yield lines about the node's first outcomes from ``since_ms`` on, then end."""
        first, backoff = FirstDecisions(since_ms), Backoff(RETRY_S, RETRY_MAX_S)
        while True:
            try:
                reading = read_topic(self._bootstrap, OUTCOME.name, since_ms=since_ms, follow=True, key=self._node)
                async with aclosing(reading):
                    async for record in reading:
                        if line := _line_of(first, record):
                            yield line
                        if first.complete:
                            return
            except LogError as exc:
                log.debug("outcomes cannot be read: %s", exc)
                await asyncio.sleep(backoff.next_s())


def _line_of(first: FirstDecisions, record: Record) -> str:
    try:
        return first.line_of(decode(record.value, NodeOutcome))
    except BadMessageError:
        return ""
