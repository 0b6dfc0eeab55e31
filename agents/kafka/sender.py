"""Sends records, and holds none back: what was not acknowledged in time is given up, never sent later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError

from slacktide.agents.kafka.closing import abandon
from slacktide.agents.kafka.records import Out, Placed
from slacktide.schemas.errors import LogError
from slacktide.streams.connecting import client, silent, told

METADATA_MS = 30_000
BATCH_BYTES = 256 * 1024


class Sender:
    """One producer, connected or not. After any failure it is not, and must be connected anew.

    So a broker that comes back is met with fresh metadata, and nothing that was queued for it before.
    With acks="all" it is idempotent where the broker can be.
    """

    def __init__(self, bootstrap: str, *, client_id: str, acks: Literal["all", "1"], timeout_s: float = 1.0) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._acks = acks
        self._timeout_s = timeout_s
        self._producer: AIOKafkaProducer | None = None
        self._known: dict[Any, Any] = {}
        """Connections by broker, as they were when last looked at."""

    @property
    def connected(self) -> bool:
        """Whether ``send`` may be called."""
        return self._producer is not None

    async def connect(self, topics: Sequence[str]) -> None:
        """Connect anew and learn where the topics' partitions are.

        Raises:
            LogError: the broker cannot be reached, or lacks one of the topics.

        """
        await self.close()
        producer = await self._started()
        for topic in topics:
            try:
                await producer.partitions_for(topic)
            except KafkaError as exc:
                await abandon(producer)
                raise LogError(
                    f"{self._bootstrap}: topic {topic}: {told(exc)}; is it there (slacktide topics plan)?"
                ) from exc
            except BaseException:
                await abandon(producer)
                raise
        self._producer = producer
        self._known = {}

    async def send(self, records: Sequence[Out]) -> list[Placed]:
        """Send records and wait until all are acknowledged; in order within a partition.

        Raises:
            LogError: some were not acknowledged in time. They may have reached the log all the same.

        """
        producer = self._producer
        if producer is None or _cut_off(producer):
            await self.close()
            raise LogError(f"{self._bootstrap}: the connection was lost")
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                sent = [
                    await producer.send(r.topic, r.value, r.key, partition=r.partition, headers=list(r.headers))
                    for r in records
                ]
                placed: list[Any] = await asyncio.gather(*sent, return_exceptions=True)
        except (KafkaError, TimeoutError) as exc:
            await self.close()
            raise LogError(f"{self._bootstrap}: {exc!r}") from exc
        failed = next((result for result in placed if isinstance(result, BaseException)), None)
        if failed is not None:
            await self.close()
            raise LogError(f"{self._bootstrap}: {failed!r}") from failed
        return [Placed(partition=result.partition, offset=result.offset) for result in placed]

    async def check(self, topics: Sequence[str]) -> None:
        """Look whether the broker is there and has the topics; for those who send seldom.

        Raises:
            LogError: it is not the broker that was connected to, or lacks one of the topics.

        """
        producer = self._producer
        why = "the connection was lost"
        if producer is not None and not _cut_off(producer) and not self._renewed(producer):
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * self._timeout_s):
                    await producer.client.force_metadata_update()
                missing = [topic for topic in topics if producer.client.cluster.partitions_for_topic(topic) is None]
                if not missing and not _cut_off(producer) and not self._renewed(producer):
                    return
                why = f"no topic {missing[0]}" if missing else why
        await self.close()
        raise LogError(f"{self._bootstrap}: {why}")

    def _renewed(self, producer: Any) -> bool:
        """Whether the client has quietly connected anew: a broker may have restarted between two looks."""
        now = producer.client._conns  # noqa: SLF001 - nothing public says so
        renewed = any(self._known.get(broker, connection) is not connection for broker, connection in now.items())
        self._known |= now
        return renewed

    async def close(self) -> None:
        """Disconnect; what is not acknowledged is given up."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await abandon(producer)

    async def _started(self) -> AIOKafkaProducer:
        try:
            if self._acks != "all":
                return await self._start(idempotent=False)
            try:
                return await self._start(idempotent=True)
            except KafkaConnectionError:
                raise
            except KafkaError:  # a broker without idempotence refuses the very first request
                return await self._start(idempotent=False)
        except KafkaError as exc:
            raise LogError(f"{self._bootstrap}: {exc}") from exc

    async def _start(self, *, idempotent: bool) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            **client(self._bootstrap),
            client_id=self._client_id,
            acks="all" if self._acks == "all" else 1,
            enable_idempotence=idempotent,
            request_timeout_ms=round(self._timeout_s * 1000),
            metadata_max_age_ms=METADATA_MS,
            max_batch_size=BATCH_BYTES,
        )
        try:
            async with asyncio.timeout(4 * self._timeout_s):
                await producer.start()
        except TimeoutError as exc:
            await abandon(producer)
            raise KafkaConnectionError(silent(4 * self._timeout_s)) from exc
        except BaseException:
            await abandon(producer)
            raise
        return producer


def _cut_off(producer: Any) -> bool:
    """Whether all its connections broke: what it knows of the broker may be of another life."""
    connections = producer.client._conns.values()  # noqa: SLF001 - nothing public says so
    return bool(connections) and not any(one.connected() for one in connections)
