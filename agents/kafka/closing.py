"""Closing aiokafka's clients for good: at once, without a last send, and without hanging on a broker that is away."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aiokafka.errors import KafkaError

CLOSE_S = 3.0


async def abandon(producer: Any) -> None:
    """Close a producer without sending what it has queued, which its own ``stop`` would do, for ever if need be."""
    producer._closed = True  # noqa: SLF001 - as its stop does
    with suppress(KafkaError, TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await producer._sender.close()  # noqa: SLF001
    await producer.client.close()


async def stop(consumer: Any) -> None:
    """Stop a consumer. Its own ``stop`` may be cut short, or made to wait for ever, by its cancelled fetches."""
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.wait({stopping}, timeout=CLOSE_S)
    if not stopping.done():
        stopping.cancel()
        await asyncio.wait({stopping}, timeout=CLOSE_S)
    with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
        stopping.exception()
    await consumer._client.close()  # noqa: SLF001
