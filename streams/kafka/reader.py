"""A consumer without a group, at positions that its owner sets. It detects outages and re-created topics."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Literal, Self

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka.closing import close
from slacktide.streams.kafka.common import FETCH_BYTES_MAX, METADATA_MS, POLL_S
from slacktide.streams.kafka.connecting import client, reason_of
from slacktide.streams.kafka.pace import Pace

REQUEST_MS = 5_000
"""A reader notices missing or re-created topics within this time; the client's 5 min would be too long."""


class Reader:
    """A consumer without a group. Reconnect after any error.

    The broker may hold a fetch for ``fetch_wait_ms``. ``lost``: at a position that no longer exists, continue from the
    earliest record, or fail. ``partition_bytes_max``: of one partition in one fetch. ``gather_ms``: how long the broker
    holds each fetch once the reader follows, so that many records share it; 0: it answers as soon as there is one.
    """

    def __init__(
        self,
        bootstrap: Cluster,
        fetch_wait_ms: int,
        *,
        client_id: str = "slacktide-reader",
        lost: Literal["earliest", "none"] = "earliest",
        partition_bytes_max: int = FETCH_BYTES_MAX,
        gather_ms: int = 0,
    ) -> None:
        self._bootstrap = bootstrap
        self._fetch_wait_ms = fetch_wait_ms
        self._client_id = client_id
        self._lost = lost
        self._partition_bytes_max = partition_bytes_max
        self._open: AIOKafkaConsumer[bytes, bytes] | None = None
        self._fetched_ms: tuple[int | None, ...] = ()
        """Time of each partition's last fetch at the last check."""
        self._gather_ms = gather_ms
        self._pace = Pace(fetch_wait_ms, gather_ms)

    async def connect(self) -> None:
        """Reconnect.

        Raises:
            LogError: no broker is reachable, or a topic does not exist.
        """
        await self.close()
        consumer = AIOKafkaConsumer(
            **client(self._bootstrap),
            client_id=self._client_id,
            group_id=None,
            request_timeout_ms=REQUEST_MS,
            metadata_max_age_ms=METADATA_MS,
            fetch_max_wait_ms=self._fetch_wait_ms,
            max_partition_fetch_bytes=self._partition_bytes_max,
            enable_auto_commit=False,
            auto_offset_reset=self._lost,
        )
        try:
            async with asyncio.timeout(2 * REQUEST_MS / 1000):
                await consumer.start()
                await self._begin(consumer)
        except LogError as exc:
            await close(consumer)
            raise LogError(f"{self._bootstrap}: {exc}") from exc
        except (KafkaError, OSError, TimeoutError) as exc:
            await close(consumer)
            raise LogError(f"{self._bootstrap}: {reason_of(exc)}") from exc
        except BaseException:
            await close(consumer)
            raise
        self._open, self._fetched_ms, self._pace = consumer, (), Pace(self._fetch_wait_ms, self._gather_ms)

    async def close(self) -> None:
        """Disconnect."""
        consumer, self._open = self._open, None
        if consumer is not None:
            await close(consumer)

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            LogError: as ``connect``.
        """
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        await self.close()

    async def check(self) -> None:
        """Check that the broker answers, and that no topic was re-created. Call it when no records arrive.

        A broker that lost its data may not answer a fetch at an offset that no longer exists.

        Raises:
            LogError: no fetch was answered since the last check, or a topic was re-created.
        """
        places = sorted(self._consumer.assignment())
        for place in places:
            end = self._consumer.highwater(place)
            if end is not None and await self._consumer.position(place) > end:
                raise LogError(f"{self._bootstrap}: {place.topic} was re-created")
        fetched_ms = tuple(self._consumer.last_poll_timestamp(place) for place in places)
        if fetched_ms == self._fetched_ms:
            raise LogError(f"{self._bootstrap}: no fetch was answered")
        self._fetched_ms = fetched_ms

    async def _begin(self, consumer: AIOKafkaConsumer[bytes, bytes]) -> None:
        """Seek to the start positions, for readers that know them when they connect."""

    @property
    def _consumer(self) -> AIOKafkaConsumer[bytes, bytes]:
        assert self._open is not None, "connect it first"
        return self._open

    async def _poll(
        self, *places: TopicPartition, most: int | None = None, wait_s: float = POLL_S
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        fetched: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]] = await self._consumer.getmany(
            *places, timeout_ms=int(wait_s * 1_000), max_records=most
        )
        return fetched

    async def _follow(
        self, most: int | None = None, wait_s: float = POLL_S
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        """Poll all partitions; idle readers of rarely changing topics fetch less often."""
        fetched = await self._poll(most=most, wait_s=wait_s)
        self._pace.polled(self._consumer, found=bool(fetched), wait_s=wait_s)
        return fetched

    async def _at_end(self, place: TopicPartition) -> bool:
        """Check for the end by fetching: the embedded broker may list an end that is too low."""
        end = self._consumer.highwater(place)
        position: int = await self._consumer.position(place)
        return end is not None and position >= end

    async def _ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of each assigned partition's next record, by fetching.

        The embedded broker lists an end that is too low if its last batch holds several records.
        """
        consumer = self._consumer
        for place, offset in (await consumer.end_offsets(list(places))).items():
            consumer.seek(place, offset)
        while unknown := [place for place in places if consumer.highwater(place) is None]:
            await self._poll(*unknown)
        return {place: consumer.highwater(place) for place in places}


async def partitions_of(consumer: AIOKafkaConsumer[bytes, bytes], topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic, in order.

    Raises:
        LogError: there is no such topic.
    """
    if topic not in await consumer.topics():
        raise LogError(f"topic {topic} does not exist; create it: slacktide topics apply")
    numbers = await consumer._client._wait_on_metadata(topic)  # noqa: SLF001 - as subscribe() does
    return [TopicPartition(topic, number) for number in sorted(numbers)]


def stand(consumer: AIOKafkaConsumer[bytes, bytes], positions: Mapping[TopicPartition, int]) -> None:
    """Read exactly these partitions, from these positions."""
    consumer.assign(list(positions))
    for place, position in positions.items():
        consumer.seek(place, position)
