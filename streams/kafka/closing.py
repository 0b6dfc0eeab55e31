"""Closing aiokafka's clients for good: in time, without a last send, and without hanging on a broker that is away.

Who is cancelled while he closes a client closes it all the same: what is left open is open for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

CLOSE_S = 2.0


async def abandon(producer: Any) -> None:
    """Close a producer without sending what it has queued, which its own ``stop`` would do, for ever if need be."""
    producer._closed = True  # noqa: SLF001 - as its stop does
    await to_its_end(_in_turn(producer._sender.close(), producer.client.close()))  # noqa: SLF001


async def close(consumer: Any) -> None:
    """Close a consumer; a member of a group leaves it."""
    # A stop that breaks off leaves the part that asks for metadata for ever.
    await to_its_end(_in_turn(consumer.stop(), consumer._client.close()))  # noqa: SLF001


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait until it has ended, and only then be cancelled."""
    closing = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not closing.done():
        try:
            await asyncio.wait({closing})
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
    closing.result()


async def _in_turn(stop: Coroutine[Any, Any, None], close_client: Coroutine[Any, Any, None]) -> None:
    await _ended(stop)
    await close_client


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
