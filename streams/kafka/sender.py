"""Writes records without a queue: those not acknowledged in time are dropped, never sent later."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, Self

import msgspec
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    InvalidTimestampError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.message_accumulator import BatchBuilder

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError, RecordRefusedError
from slacktide.streams.kafka.connecting import METADATA_MS, abandon, client, reason_of, silent
from slacktide.streams.kafka.rendered import Batch, Part, Rendered, RenderedBatch, batches, check_size, out_of, parts
from slacktide.streams.records import Out
from slacktide.streams.tasks import unwatched

log = logging.getLogger(__name__)

ASK_S = 5.0
"""A deleted topic is noticed within this time. A lost connection is noticed at once."""
BATCH_BYTES = 512 << 10
PLAIN_BYTES_MAX = 1 << 20
"""Per record: a broker's default."""
COMPRESSED_BYTES_MAX = 4 << 20
"""Per record before compression: well below readers' limits, and compressed within a quarter of a second."""
_CONTENT = (
    CorruptRecordException,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
"""Refusals of a record for its size or content. Other errors concern the broker."""
_partitioner = DefaultPartitioner()


class Placed(msgspec.Struct, frozen=True, gc=False):
    """The position of an acknowledged record."""

    partition: int
    offset: int


class Refused(msgspec.Struct, frozen=True, gc=False):
    """A record that a broker refuses for its size or content."""

    out: Out
    why: str


class Sender:
    """One producer. After any error it is disconnected, and must be reconnected.

    So it has fresh metadata and an empty queue when a broker returns. With acks="all" it is idempotent if the broker
    supports it. A send ends within twice ``timeout_s``, a connection attempt within four times. With zstd
    (``compress``; docs/sizing.md) records may be larger: a broker limits what it receives.
    """

    def __init__(
        self,
        bootstrap: Cluster,
        *,
        client_id: str,
        acks: Literal["all", "1"] = "all",
        timeout_s: float = 1.0,
        compress: bool = False,
    ) -> None:
        self._bootstrap, self._client_id, self._acks, self._timeout_s = bootstrap, client_id, acks, timeout_s
        self._compress = compress
        self._record_bytes_max = COMPRESSED_BYTES_MAX if compress else PLAIN_BYTES_MAX
        self._idempotent = acks == "all"
        """Whether the producer is idempotent; before the first one, whether it is requested."""
        self._producer: AIOKafkaProducer | None = None
        self._one_by_one = asyncio.Lock()
        self._asked_s = -math.inf
        """When the broker was last asked for its topics."""
        self._known: dict[Any, Any] = {}

    @property
    def connected(self) -> bool:
        """Check whether ``send`` may be called."""
        return self._producer is not None

    async def __aenter__(self) -> Self:
        """Connect, as ``connect`` without topics."""
        await self.connect(())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self.close()

    async def connect(self, topics: Sequence[str]) -> None:
        """Reconnect, and fetch the topics' partitions.

        Raises LogError if no broker is reachable, or one of the topics does not exist.
        """
        await self.close()
        producer = await self._started()
        for topic in topics:
            try:
                await producer.partitions_for(topic)
            except BaseException as exc:
                await abandon(producer)
                if isinstance(exc, KafkaError):
                    hint = f"{reason_of(exc)}; is it there (slacktide topics plan)?"
                    raise LogError(f"{self._bootstrap}: topic {topic}: {hint}") from exc
                raise
        self._producer = producer
        self._known = {}

    async def send(self, records: Sequence[Out]) -> list[Placed]:
        """Write all records and wait for acknowledgements; in order within a partition.

        Raises:
            RecordRefusedError: the broker refuses one of them for its size or content; others may have been written.
            LogError: some were not acknowledged in time. They may have been written.
        """
        async with self._one_by_one:
            results = await self._attempt(records)
            refused = next((result for result in results if isinstance(result, Refused)), None)
            if refused is not None:
                await self.close()
                raise RecordRefusedError(refused.why)
        return [result for result in results if isinstance(result, Placed)]

    async def send_each(self, records: Sequence[Out]) -> list[Placed | Refused]:
        """Write all records; a refused one does not affect others.

        Raises LogError as ``send``, for any other reason.
        """
        async with self._one_by_one:
            results = await self._attempt(records)
            refused = [number for number, result in enumerate(results) if isinstance(result, Refused)]
            # A bad record fails its batch and those behind it, so each of them is sent again, alone.
            for number in refused:
                await self._begin_anew()
                [results[number]] = await self._attempt([records[number]])
            if refused:
                await self._begin_anew()
        return results

    async def send_rendered(self, batches: Sequence[Rendered]) -> list[Refused | None]:
        """Write rendered records uncompressed; a refused one does not affect others.

        Returns, for each record in order, why it is refused; None: it was acknowledged. Raises LogError as ``send``,
        for any other reason.
        """
        results: list[Refused | None] = [None] * sum(len(batch.records) for batch in batches)
        async with self._one_by_one:
            left = parts(batches)
            while left:
                again: list[Part] = []
                answers = await self._attempt_rendered(left)
                for part, error in zip(left, answers, strict=True):
                    if not isinstance(error, _CONTENT):
                        again += [] if error is None else [part]
                    elif len(part.records) > 1:
                        again += part.halves()
                    else:
                        results[part.first] = _refusal(out_of(part.place, part.records[0]), error)
                if any(answers):
                    await self._begin_anew()
                left = again
        return results

    async def check(self, topics: Sequence[str]) -> None:
        """Check that the broker is connected, and now and then that it has the topics; for producers that seldom send.

        It asks for these topics only, because an answer about all of them has some hundred partitions.

        Raises LogError if the connection was lost or renewed, or one of the topics is missing.
        """
        producer = self._producer
        why = "the connection was lost"
        if producer is not None and not _cut_off(producer) and not self._renewed(producer):
            now_s = asyncio.get_running_loop().time()
            if now_s < self._asked_s + ASK_S:
                return
            self._asked_s = now_s
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * self._timeout_s):
                    await producer.client.set_topics(topics)
                    await producer.client.force_metadata_update()
                missing = [topic for topic in topics if producer.client.cluster.partitions_for_topic(topic) is None]
                if not missing and not _cut_off(producer) and not self._renewed(producer):
                    return
                why = f"no topic {missing[0]}" if missing else why
        await self.close()
        raise LogError(f"{self._bootstrap}: {why}")

    async def close(self) -> None:
        """Disconnect; drop unacknowledged records."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await abandon(producer)

    async def _attempt(self, records: Sequence[Out]) -> list[Placed | Refused]:
        """Write all records at once; one that shares a batch with a refused one counts as refused.

        Raises LogError for any other failure; disconnected.
        """
        results: list[Placed | Refused | None] = [None] * len(records)
        async with self._connected() as producer:
            made = await self._batched(producer, records, results)
            answers = await self._written(producer, [(batch.place, batch.builder) for batch in made])
            for batch, answer in zip(made, answers, strict=True):
                if isinstance(answer, _CONTENT):
                    for number in batch.numbers:
                        results[number] = _refusal(records[number], answer)
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    for offset, number in enumerate(batch.numbers, answer.offset):
                        results[number] = Placed(answer.partition, offset)
        return [result for result in results if result is not None]

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AIOKafkaProducer]:
        """Return the producer for one attempt, within a timeout.

        Raises LogError if the attempt failed or timed out; disconnected.
        """
        producer = self._producer
        if producer is None or _cut_off(producer):
            await self.close()
            raise LogError(f"{self._bootstrap}: the connection was lost")
        try:
            async with asyncio.timeout(2 * self._timeout_s):
                yield producer
        except (KafkaError, OSError, TimeoutError) as exc:
            await self.close()
            raise LogError(f"{self._bootstrap}: {reason_of(exc)}") from exc
        except LogError:
            await self.close()
            raise

    async def _attempt_rendered(self, left: Sequence[Part]) -> list[BaseException | None]:
        """Write all batches at once; return why each must be written again, in parts.

        Raises LogError for any other failure; disconnected.
        """
        async with self._connected() as producer:
            made_ms = producer.create_batch().append(timestamp=None, key=None, value=b"").timestamp
            answers = await self._written(
                producer, [(part.place, RenderedBatch(part.records, made_ms)) for part in left]
            )
            errors = [answer if isinstance(answer, BaseException) else None for answer in answers]
            spoiled = {part.place for part, error in zip(left, errors, strict=True) if isinstance(error, _CONTENT)}
            for part, error in zip(left, errors, strict=True):
                # The broker misses a batch that it refused from an idempotent producer, and fails those behind it.
                if error is not None and part.place not in spoiled:
                    raise error
        return errors

    async def _batched(
        self, producer: AIOKafkaProducer, records: Sequence[Out], results: list[Placed | Refused | None]
    ) -> list[Batch]:
        placed: list[tuple[TopicPartition, int, Out]] = []
        for number, out in enumerate(records):
            try:
                check_size(out, self._record_bytes_max)
            except MessageSizeTooLargeError as exc:
                results[number] = _refusal(out, exc)
            else:
                partition = out.partition
                if partition is None:
                    partition = _partitioner(out.key, list(await producer.partitions_for(out.topic)), [])
                placed.append((TopicPartition(out.topic, partition), number, out))
        return batches(producer, placed)

    async def _written(
        self, producer: AIOKafkaProducer, made: Sequence[tuple[TopicPartition, BatchBuilder | RenderedBatch]]
    ) -> list[Any]:
        """Write batches; return of each its position, or why it failed.

        ``producer.send_batch`` looks up the topic's partitions twice for each batch. Raises LogError if a topic has no
        such partition.
        """
        topics = {place.topic for place, _ in made}
        known = {topic: await producer.client._wait_on_metadata(topic) for topic in topics}  # noqa: SLF001
        for topic, number in (place for place, _ in made):
            if number not in known[topic]:
                raise LogError(f"{topic} has no partition {number}: slacktide topics plan")
        queue = producer._message_accumulator  # noqa: SLF001 - as send_batch does
        written: list[Any] = []
        try:
            for place, builder in made:
                written.append(await queue.add_batch(builder, place, self._timeout_s))
            return await asyncio.gather(*written, return_exceptions=True)
        finally:
            for one in written:
                unwatched(one)

    async def _begin_anew(self) -> None:
        """Reconnect after a refusal: an idempotent producer counts the refused write, which the broker misses."""
        if self._idempotent:
            await self.connect(())

    def _renewed(self, producer: Any) -> bool:
        """Check whether the client has reconnected: a broker may have restarted between two checks."""
        now = producer.client._conns  # noqa: SLF001 - there is no public access
        renewed = any(self._known.get(broker, connection) is not connection for broker, connection in now.items())
        self._known |= now
        return renewed

    async def _started(self) -> AIOKafkaProducer:
        try:
            try:
                return await self._start(idempotent=self._acks == "all")
            except KafkaError as exc:
                if self._acks != "all" or isinstance(exc, KafkaConnectionError):
                    raise
                # A broker without idempotence refuses the first request.
                log.debug("no idempotent producer on this broker: a retried write may appear twice (%s)", exc)
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
            compression_type="zstd" if self._compress else None,
        )
        try:
            async with asyncio.timeout(4 * self._timeout_s):
                await producer.start()
        except BaseException as exc:
            await abandon(producer)
            if isinstance(exc, TimeoutError):
                raise KafkaConnectionError(silent(4 * self._timeout_s)) from exc
            raise
        self._idempotent = idempotent
        return producer


def _refusal(out: Out, error: Exception) -> Refused:
    hint = "" if isinstance(error, InvalidTimestampError) else "; see max.message.bytes of the topic"
    return Refused(out, f"{out.topic} refuses {len(out.value or b''):,} bytes: {type(error).__name__}{hint}")


def _cut_off(producer: Any) -> bool:
    """Check whether all its connections broke, so that its metadata may be outdated."""
    connections = producer.client._conns.values()  # noqa: SLF001 - there is no public access
    return bool(connections) and not any(one.connected() for one in connections)
