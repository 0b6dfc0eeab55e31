"""A consumer without a group, standing where its owner puts it; and whether silence is only silence."""

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
"""Within this a reader notices that a topic is gone, or there again: the client's own 5 min would be too long."""


class Reader:
    """Connected or not. After any failure connect anew.

    Args:
        bootstrap: the Kafka cluster.
        fetch_wait_ms: how long the broker may hold a fetch.
        client_id: of this reader, in the brokers' logs.
        lost: what a position that is not there any more means: to go on from the earliest record, or to fail.
        partition_bytes_max: of one partition in one fetch.

    """

    def __init__(
        self,
        bootstrap: Cluster,
        fetch_wait_ms: int,
        *,
        client_id: str = "slacktide-reader",
        lost: Literal["earliest", "none"] = "earliest",
        partition_bytes_max: int = FETCH_BYTES_MAX,
    ) -> None:
        self._bootstrap = bootstrap
        self._fetch_wait_ms = fetch_wait_ms
        self._client_id = client_id
        self._lost = lost
        self._partition_bytes_max = partition_bytes_max
        self._open: AIOKafkaConsumer[bytes, bytes] | None = None
        self._fetched_ms: tuple[int | None, ...] = ()
        """When each partition's last fetch was answered, as it was at the last look."""
        self._pace = Pace(fetch_wait_ms)

    async def connect(self) -> None:
        """Connect anew.

        Raises:
            LogError: no broker can be reached, or what is to be read does not exist.

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
        self._open, self._fetched_ms, self._pace = consumer, (), Pace(self._fetch_wait_ms)

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
        """Ask where nothing comes: does the broker answer, and is each topic still the one that was read?

        A broker that lost its memory may answer nothing to an offset that is not there any more.

        Raises:
            LogError: no fetch was answered since the last look, or a topic was re-created.

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
        """Stand where reading begins; for readers that know it at connecting."""

    @property
    def _consumer(self) -> AIOKafkaConsumer[bytes, bytes]:
        assert self._open is not None, "connect it first"
        return self._open

    async def _poll(
        self, *places: TopicPartition, most: int | None = None, wait_s: float = POLL_S
    ) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        """What has come, waiting a moment for it."""
        fetched: dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]] = await self._consumer.getmany(
            *places, timeout_ms=int(wait_s * 1_000), max_records=most
        )
        return fetched

    async def _follow(self, most: int | None = None) -> dict[TopicPartition, list[ConsumerRecord[bytes, bytes]]]:
        """``_poll`` of all partitions, for readers that follow what seldom changes: when idle they ask less often."""
        fetched = await self._poll(most=most)
        self._pace.polled(self._consumer, found=bool(fetched))
        return fetched

    async def _at_end(self, place: TopicPartition) -> bool:
        """By fetching: the embedded broker's answer to the plain question may be too low."""
        end = self._consumer.highwater(place)
        position: int = await self._consumer.position(place)
        return end is not None and position >= end

    async def _ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that each assigned partition's next record will have, by fetching.

        The embedded broker's answer to the plain question is too low where its last batch holds several records.
        """
        consumer = self._consumer
        for place, offset in (await consumer.end_offsets(list(places))).items():
            consumer.seek(place, offset)
        while unknown := [place for place in places if consumer.highwater(place) is None]:
            await self._poll(*unknown)
        return {place: consumer.highwater(place) for place in places}


async def partitions_of(consumer: AIOKafkaConsumer[bytes, bytes], topic: str) -> list[TopicPartition]:
    """The partitions of a topic, in order.

    Raises:
        LogError: there is no such topic.

    """
    if topic not in await consumer.topics():
        raise LogError(f"no topic {topic}: slacktide topics apply")
    numbers = await consumer._client._wait_on_metadata(topic)  # noqa: SLF001 - as subscribe() does
    return [TopicPartition(topic, number) for number in sorted(numbers)]


def stand(consumer: AIOKafkaConsumer[bytes, bytes], positions: Mapping[TopicPartition, int]) -> None:
    """Read these partitions from there on, and no others."""
    consumer.assign(list(positions))
    for place, position in positions.items():
        consumer.seek(place, position)
