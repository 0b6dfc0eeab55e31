"""Writes what the worker says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    CorruptRecordException,
    IncompatibleBrokerVersion,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    RecordTooLargeError,
    UnknownError,
    UnsupportedVersionError,
)

from slacktide.schemas.errors import LogError
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A record that the log refused for its content."""

    out: Out
    why: str


class Sender:
    """Writes records, acknowledged by all in-sync replicas; without duplicates where the broker can do that."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            LogError: nobody answers.

        """
        with trouble(f"cannot write to {self._bootstrap}"):
            try:
                self._producer = await self._started(idempotent=True)
            except _NOT_IDEMPOTENT:
                log.warning(
                    "the broker has no idempotent producer: a retried write may appear twice, and is applied once"
                )
                self._producer = await self._started(idempotent=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect."""
        if self._producer is not None:
            await close(self._producer)

    async def _started(self, *, idempotent: bool) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=idempotent,
            max_batch_size=BATCH_BYTES_MAX,
            request_timeout_ms=int(SEND_S * 1_000),
        )
        try:
            await producer.start()
        except BaseException:
            await close(producer)
            raise
        return producer

    async def send(self, outs: Iterable[Out]) -> list[Refusal]:
        """Write all and wait for the acknowledgements; returns what was refused for its content.

        Raises:
            LogError: a write failed for any other reason.

        """
        with trouble(f"a write to {self._bootstrap} failed"):
            async with asyncio.timeout(SEND_S):
                # One bad record fails the batch that it travels in: each of them again, alone.
                again = [refusal for out, _ in await self._sent(outs) for refusal in await self._sent([out])]
        return [Refusal(out=out, why=f"{type(error).__name__}: {error}") for out, error in again]

    async def _sent(self, outs: Iterable[Out]) -> list[tuple[Out, KafkaError]]:
        queued: list[tuple[Out, asyncio.Future[object]]] = []
        failed: list[tuple[Out, BaseException]] = []
        for out in outs:
            try:
                queued.append((out, await self._queued(out)))
            except _CONTENT as exc:
                failed.append((out, exc))
        answers = await asyncio.gather(*(future for _, future in queued), return_exceptions=True)
        failed += [(out, got) for (out, _), got in zip(queued, answers, strict=True) if isinstance(got, BaseException)]
        refused = []
        for out, error in failed:
            if not isinstance(error, _CONTENT):
                raise error
            refused.append((out, error))
        return refused

    async def _queued(self, out: Out) -> asyncio.Future[object]:
        assert self._producer is not None, "enter it first"
        try:
            future: asyncio.Future[object] = await self._producer.send(
                out.topic, key=out.key, value=out.value, partition=out.partition, headers=list(out.headers)
            )
        except AssertionError as exc:  # the client's way to say so
            raise LogError(f"{out.topic} has no partition {out.partition}: make its topics equal") from exc
        return future
