"""Many records into a topic with little CPU: whole batches, each written for its partition."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer

from bench.stamp import Stamped

BATCH_BYTES = 1 << 19
UNSETTLED_MAX = 256
"""Batches on their way: enough to keep a broker busy."""


class Batches:
    """Records on their way into a topic."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._open: dict[int, Any] = {}
        self._sent: list[asyncio.Future[Any]] = []

    async def add(self, record: Stamped) -> None:
        """Put a record into its partition's batch; a full one is sent."""
        fields = {"timestamp": record.at_ms, "key": record.key, "value": record.value, "headers": record.headers}
        batch = self._open.get(record.partition)
        if batch is None or batch.append(**fields) is None:
            if batch is not None:
                await self._send(record.partition)
            self._open[record.partition] = self._producer.create_batch()
            self._open[record.partition].append(**fields)

    async def flush(self) -> None:
        """Send what is open."""
        for partition in list(self._open):
            await self._send(partition)

    async def settle(self) -> None:
        """Wait until the log has all that was sent.

        Raises:
            KafkaError: it refuses some.

        """
        sent, self._sent = self._sent, []
        await asyncio.gather(*sent)

    async def _send(self, partition: int) -> None:
        batch = self._open.pop(partition)
        batch.close()
        self._sent.append(await self._producer.send_batch(batch, self._topic, partition=partition))
        if len(self._sent) >= UNSETTLED_MAX:
            await self.settle()


@asynccontextmanager
async def batches(bootstrap: str, topic: str) -> AsyncIterator[Batches]:
    """Everything added is in the log at the end."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=1, max_batch_size=BATCH_BYTES) as producer:
        made = Batches(producer, topic)
        yield made
        await made.flush()
        await made.settle()


def write(bootstrap: str, topic: str, records: Iterable[Stamped]) -> int:
    """Write them all; how many they were."""

    async def send() -> int:
        count = 0
        async with batches(bootstrap, topic) as out:
            for record in records:
                await out.add(record)
                count += 1
        return count

    return asyncio.run(send())
