"""Limits for an HTTP server's connections: their number, the time to the first request, the time per request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiohttp import web

CONNECTIONS_MAX = 512
"""API servers and a kube-scheduler keep a few dozen connections."""
FIRST_S = 5.0
"""From the connection to its first complete request head."""
REQUEST_S = 10.0
"""From the request head to the response; longer than any caller's timeout."""
LOOK_S = 0.5

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Bounds:
    """Limits of one server. Use ``middleware`` in its application and ``kept`` around its lifetime.

    ``lasting``: paths with endless responses, such as an event stream.
    """

    def __init__(self, lasting: frozenset[str] = frozenset()) -> None:
        self._lasting = lasting
        self._born: dict[Any, float] = {}
        self._asked: set[Any] = set()
        self._busy: set[Any] = set()

    @property
    def middleware(self) -> Any:
        """Responds 408 to a request that takes too long."""

        @web.middleware
        async def bounded(request: web.Request, handler: _Handler) -> web.StreamResponse:
            self._asked.add(request.protocol)
            self._busy.add(request.protocol)
            try:
                async with asyncio.timeout(None if request.path in self._lasting else REQUEST_S):
                    return await handler(request)
            except TimeoutError:
                response = web.Response(status=408, text=f"incomplete after {REQUEST_S:g} s")
                response.force_close()
                return response
            finally:
                self._busy.discard(request.protocol)

        return bounded

    @asynccontextmanager
    async def kept(self, runner: web.AppRunner) -> AsyncIterator[None]:
        """Close connections that exceed the limits."""
        looking = asyncio.create_task(self._look(runner))
        try:
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _look(self, runner: web.AppRunner) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            server, now_s = runner.server, loop.time()
            there = [] if server is None else server.connections
            self._born = {one: self._born.get(one, now_s) for one in there}
            self._asked.intersection_update(there)
            for one in self._out_of_bounds(now_s):
                if one.transport is not None:
                    one.transport.abort()

    def _out_of_bounds(self, now_s: float) -> list[Any]:
        """Return connections that are too slow, and above the limit the newest without a request."""
        slow = [one for one, born_s in self._born.items() if one not in self._asked and now_s - born_s > FIRST_S]
        idle = [one for one in self._born if one not in self._busy and one not in slow]
        idle.sort(key=lambda one: (one in self._asked, -self._born[one]))
        return slow + idle[: max(0, len(self._born) - len(slow) - CONNECTIONS_MAX)]
