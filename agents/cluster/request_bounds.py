"""Serves HTTP with limits: the connections, the time to the first request, the time per request."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from slacktide.agents.listening import listening
from slacktide.schemas.errors import SlacktideError
from slacktide.streams.tasks import ended

CONNECTIONS_MAX = 512
"""API servers and a kube-scheduler keep a few dozen connections."""
FIRST_S = 5.0
"""From the connection to its first complete request head."""
REQUEST_S = 10.0
"""From the request head to the response; longer than any caller's timeout."""
LOOK_S = 0.5
CLOSING_S = 1.0
KEPT_S = 120.0
"""Keep-alive: longer than an API server's and a kube-scheduler's (90 s), so that no connection closes as it is used."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ServerError(SlacktideError):
    """The server cannot listen on the address."""


@asynccontextmanager
async def served(
    handlers: Mapping[str, Callable[[web.Request], Awaitable[web.Response]]],
    host: str,
    port: int,
    *,
    question_bytes_max: int,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve POST requests by path until left; yields the port. Port 0 means any free port.

    Raises:
        ServerError: the server cannot listen on the address.
    """
    bounds = RequestBounds()
    app = web.Application(client_max_size=question_bytes_max, middlewares=[bounds.middleware])
    for path, handler in handlers.items():
        app.router.add_post(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSING_S, keepalive_timeout=KEPT_S)
    await runner.setup()
    try:
        try:
            await web.SockSite(runner, listening(host, port), ssl_context=tls).start()
        except OSError as exc:
            raise ServerError(f"{host}:{port}: {exc.strerror}; choose another address with --host and --port") from exc
        async with bounds.kept(runner):
            yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class RequestBounds:
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
            await ended(looking)
            if not looking.cancelled():
                looking.result()

    async def _look(self, runner: web.AppRunner) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_S)
            server, now_s = runner.server, loop.time()
            there = [] if server is None else server.connections
            self._born = {one: self._born.get(one, now_s) for one in there}
            self._asked.intersection_update(there)
            # Those that are too slow, and above the limit the newest without a request.
            slow = [one for one, born_s in self._born.items() if one not in self._asked and now_s - born_s > FIRST_S]
            idle = [one for one in self._born if one not in self._busy and one not in slow]
            idle.sort(key=lambda one: (one in self._asked, -self._born[one]))
            for one in slow + idle[: max(0, len(self._born) - len(slow) - CONNECTIONS_MAX)]:
                if one.transport is not None:
                    one.transport.abort()
