"""The webhook's HTTPS server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from aiohttp import web

from slacktide.agents.cluster.bounds import served
from slacktide.agents.cluster.certificate.tls import Clients, Tls
from slacktide.agents.cluster.webhook.answers import Answers
from slacktide.schemas.errors import SlacktideError

log = logging.getLogger(__name__)

MUTATE_PODS, VALIDATE_EVICTIONS = "/mutate-pods", "/validate-evictions"
QUESTION_BYTES_MAX = 8 * 1024 * 1024
"""The API server accepts objects of up to 3 MiB; a request holds one."""

_Answer = Callable[[bytes], Awaitable[bytes]]


def serving(
    answers: Answers, tls: Tls, host: str, port: int, *, leaving: asyncio.Event
) -> AbstractAsyncContextManager[int]:
    """Serve until left; yields the port.

    Once ``leaving`` is set, connections close after their response, so that clients use another replica.

    Raises:
        ServerError: the server cannot listen on the address.
    """
    handlers = {
        MUTATE_PODS: _handler(answers.mutate, tls.clients, leaving),
        VALIDATE_EVICTIONS: _handler(answers.fence, tls.clients, leaving),
    }
    return served(handlers, host, port, question_bytes_max=QUESTION_BYTES_MAX, tls=tls.context)


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
