"""Writes what the worker says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    IncompatibleBrokerVersion,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
    UnknownError,
    UnsupportedVersionError,
)
from aiokafka.partitioner import DefaultPartitioner

from slacktide.schemas.errors import LogError
from slacktide.streams.connecting import client
from slacktide.streams.kafka.batch import Batch, batches, check_size
from slacktide.streams.kafka.common import close, trouble
from slacktide.streams.records import Out

log = logging.getLogger(__name__)

SEND_S = 6.0
"""A write that is not acknowledged within this has failed."""
BATCH_BYTES_MAX = 512 << 10

_CONTENT = (
    CorruptRecordException,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
)
"""Refusals of a record for what is in it; anything else is trouble with the log."""
_NOT_IDEMPOTENT = (IncompatibleBrokerVersion, UnknownError, UnsupportedVersionError)
_partitioner = DefaultPartitioner()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A record that the log refused for its content."""

    out: Out
    why: str


class Sender:
    """Writes records, acknowledged by all in-sync replicas; without duplicates where the broker can do that."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._idempotent = True
        self._producer: AIOKafkaProducer | None = None
        self._one_by_one = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            LogError: nobody answers.

        """
        with trouble(f"cannot write to {self._bootstrap}"):
            try:
                await self._connect()
            except _NOT_IDEMPOTENT:
                self._idempotent = False
                log.warning(
                    "no idempotent producer on this broker: a retried write may appear twice, to be applied once"
                )
                await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        await self._disconnect()

    async def send(self, outs: Iterable[Out]) -> list[Refusal]:
        """Write all and wait for the acknowledgements; returns what was refused for its content.

        Raises:
            LogError: a write failed for any other reason.

        """
        refusals = []
        with trouble(f"a write to {self._bootstrap} failed"):
            async with self._one_by_one, asyncio.timeout(SEND_S):
                failed = await self._tried(outs)
                if failed and not any(isinstance(error, _CONTENT) for _, error in failed):
                    raise failed[0][1]
                # One bad record fails the batch that it travels in, and those behind it: each of them again, alone.
                for out, _ in failed:
                    await self._begin_anew()
                    for _, error in await self._tried([out]):
                        if not isinstance(error, _CONTENT):
                            raise error
                        refusals.append(Refusal(out=out, why=f"{type(error).__name__}: {error}"))
                if refusals:
                    await self._begin_anew()
        return refusals

    async def _tried(self, outs: Iterable[Out]) -> list[tuple[Out, BaseException]]:
        """Write all; those that failed, each with why."""
        assert self._producer is not None, "enter it first"
        placed: list[tuple[TopicPartition, Out]] = []
        failed: list[tuple[Out, BaseException]] = []
        for out in outs:
            try:
                check_size(out)
            except MessageSizeTooLargeError as exc:
                failed.append((out, exc))
            else:
                number = await self._by_key(out) if out.partition is None else out.partition
                placed.append((TopicPartition(out.topic, number), out))
        made = batches(self._producer, placed)
        written = [await self._queued(batch) for batch in made]
        answers = await asyncio.gather(*written, return_exceptions=True)
        for batch, got in zip(made, answers, strict=True):
            if isinstance(got, BaseException):
                failed += [(out, got) for out in batch.outs]
        return failed

    async def _by_key(self, out: Out) -> int:
        assert self._producer is not None, "enter it first"
        number: int = _partitioner(out.key, list(await self._producer.partitions_for(out.topic)), [])
        return number

    async def _queued(self, batch: Batch) -> asyncio.Future[object]:
        assert self._producer is not None, "enter it first"
        topic, number = batch.place
        try:
            future: asyncio.Future[object] = await self._producer.send_batch(batch.builder, topic, partition=number)
        except AssertionError as exc:  # the client's way to say so
            raise LogError(f"{topic} has no partition {number}: make its topics equal") from exc
        return future

    async def _begin_anew(self) -> None:
        """After a refusal: an idempotent producer counts the refused write, and the broker would miss it for ever."""
        if self._idempotent:
            await self._disconnect()
            await self._connect()

    async def _connect(self) -> None:
        producer = AIOKafkaProducer(
            **client(self._bootstrap),
            acks="all",
            enable_idempotence=self._idempotent,
            max_batch_size=BATCH_BYTES_MAX,
            request_timeout_ms=int(SEND_S * 1_000),
        )
        try:
            await producer.start()
        except BaseException:
            await close(producer)
            raise
        self._producer = producer

    async def _disconnect(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await close(producer)
