"""The webhook's HTTPS server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from slacktide.agents.cluster.bounds import Bounds
from slacktide.agents.cluster.certificate.tls import Clients, Tls
from slacktide.agents.cluster.webhook.answers import Answers
from slacktide.agents.listening import listening
from slacktide.schemas.errors import SlacktideError

log = logging.getLogger(__name__)

MUTATE_PODS, VALIDATE_EVICTIONS = "/mutate-pods", "/validate-evictions"
QUESTION_BYTES_MAX = 8 * 1024 * 1024
"""The API server accepts objects of up to 3 MiB; a request holds one."""
CLOSING_S = 1.0
KEPT_S = 120.0
"""Keep-alive: longer than an API server's (90 s), so that no connection closes as it is used."""

_Answer = Callable[[bytes], Awaitable[bytes]]


class ServerError(SlacktideError):
    """The server cannot listen on the address."""


@asynccontextmanager
async def serving(answers: Answers, tls: Tls, host: str, port: int, *, leaving: asyncio.Event) -> AsyncIterator[int]:
    """Serve until left; yields the port.

    Once ``leaving`` is set, connections close after their response, so that clients use another replica.

    Raises:
        ServerError: the server cannot listen on the address.
    """
    bounds = Bounds()
    app = web.Application(client_max_size=QUESTION_BYTES_MAX, middlewares=[bounds.middleware])
    app.router.add_post(MUTATE_PODS, _handler(answers.mutate, tls.clients, leaving))
    app.router.add_post(VALIDATE_EVICTIONS, _handler(answers.fence, tls.clients, leaving))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSING_S, keepalive_timeout=KEPT_S)
    await runner.setup()
    try:
        try:
            await web.SockSite(runner, listening(host, port), ssl_context=tls.context).start()
        except OSError as exc:
            raise ServerError(f"{host}:{port}: {exc.strerror}; choose another address with --host and --port") from exc
        async with bounds.kept(runner):
            yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _handler(
    answer: _Answer, clients: Clients | None, leaving: asyncio.Event
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        refused = "" if clients is None else clients.refuse(request.get_extra_info("peercert"))
        response = web.Response(status=403, text=refused) if refused else await _response(answer, request)
        if leaving.is_set():
            response.force_close()
        return response

    return handle


async def _response(answer: _Answer, request: web.Request) -> web.Response:
    """On an error the webhook configuration's failurePolicy applies."""
    try:
        return web.Response(body=await answer(await request.read()), content_type="application/json")
    except SlacktideError as exc:
        log.error("cannot handle a request", extra={"path": request.path, "why": str(exc)})  # noqa: TRY400 - raised on purpose
        return web.Response(status=500, text=str(exc))
    except Exception:
        log.exception("cannot handle a request", extra={"path": request.path})
        return web.Response(status=500, text="internal error of the webhook; see its log")
