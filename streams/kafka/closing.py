"""Closing aiokafka's clients for good: in time, without a last send, and without hanging on a broker that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

CLOSE_S = 2.0


async def abandon(producer: Any) -> None:
    """Close a producer without sending what it has queued, which its own ``stop`` would do, for ever if need be."""
    producer._closed = True  # noqa: SLF001 - as its stop does
    await _ended(producer._sender.close())  # noqa: SLF001
    await producer.client.close()


async def close(consumer: Any) -> None:
    """Close a consumer; a member of a group leaves it."""
    await _ended(consumer.stop())
    # A stop that breaks off leaves the part that asks for metadata for ever.
    await consumer._client.close()  # noqa: SLF001


async def _ended(work: Coroutine[Any, Any, None]) -> None:
    """Wait until the client has stopped, but not for long, and whatever it raises.

    In a task of its own: a stop may raise CancelledError, of its own cancelled fetches, as if we were cancelled.
    """
    stopping = asyncio.create_task(work)
    await asyncio.wait({stopping}, timeout=CLOSE_S)
    if not stopping.done():
        stopping.cancel()
        await asyncio.wait({stopping}, timeout=CLOSE_S)
    with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
        stopping.exception()
