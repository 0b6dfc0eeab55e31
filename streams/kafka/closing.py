"""Closes aiokafka's clients in bounded time, without a last send, even if a broker is unreachable.

A client is closed completely even if its task is cancelled; otherwise it would stay open forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

CLOSE_S = 2.0


async def abandon(producer: Any) -> None:
    """Close a producer without sending its queue, which its own ``stop`` would do, possibly forever."""
    producer._closed = True  # noqa: SLF001 - as its stop does
    await to_its_end(_in_turn(producer._sender.close(), producer.client.close()))  # noqa: SLF001


async def close(consumer: Any) -> None:
    """Close a consumer; a member of a group leaves it."""
    # An interrupted stop would leave the metadata task running forever.
    await to_its_end(_in_turn(consumer.stop(), consumer._client.close()))  # noqa: SLF001


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait until the work has ended; raise a cancellation only then."""
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
    """Wait a limited time until the client has stopped; ignore its errors.

    In a separate task, because a stop may raise CancelledError of its own fetches.
    """
    stopping = asyncio.create_task(work)
    await asyncio.wait({stopping}, timeout=CLOSE_S)
    if not stopping.done():
        stopping.cancel()
        await asyncio.wait({stopping}, timeout=CLOSE_S)
    with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
        stopping.exception()
