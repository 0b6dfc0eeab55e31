"""The HTTP server for a kube-scheduler. It needs no TLS: both share a pod, and use its loopback."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from aiohttp import web

from slacktide.agents.cluster.bounds import served
from slacktide.agents.cluster.scheduler.answers import Answers
from slacktide.agents.cluster.scheduler.metrics import ANSWER, ANSWERS
from slacktide.schemas.errors import BadMessageError

log = logging.getLogger(__name__)

FILTER, PRIORITIZE = "filter", "prioritize"
QUESTION_BYTES_MAX = 16 * 1024 * 1024
"""A pod of 1.5 MiB, and the names of many thousand nodes."""


def serving(answers: Answers, lacking: Callable[[], str], host: str, port: int) -> AbstractAsyncContextManager[int]:
    """Serve until left; yields the port. Port 0 means any free port.

    ``lacking``: why no request can be handled yet; "": it can. A kube-scheduler may ignore an extender's failure.

    Raises:
        ServerError: the server cannot listen on the address.
    """
    handlers = {
        f"/{FILTER}": _handler(FILTER, answers.filter, lacking),
        f"/{PRIORITIZE}": _handler(PRIORITIZE, answers.prioritize, lacking),
    }
    return served(handlers, host, port, question_bytes_max=QUESTION_BYTES_MAX)


def _handler(
    verb: str, answer: Callable[[bytes], bytes], lacking: Callable[[], str]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            body = await request.read()
        except web.RequestPayloadError as exc:  # malformed compression
            response = web.Response(status=400, text=str(exc))
        else:
            with ANSWER.labels(verb).time():
                response = _response(verb, answer, body, lacking())
        ANSWERS.labels(verb, "answered" if response.status == web.HTTPOk.status_code else "failed").inc()
        return response

    return handle


def _response(verb: str, answer: Callable[[bytes], bytes], body: bytes, lacking: str) -> web.Response:
    if lacking:
        return web.Response(status=503, text=lacking)
    try:
        return web.Response(body=answer(body), content_type="application/json")
    except BadMessageError as exc:
        log.warning("cannot handle a request", extra={"verb": verb, "why": str(exc)})
        return web.Response(status=400, text=str(exc))
    except Exception:
        log.exception("cannot handle a request", extra={"verb": verb})
        return web.Response(status=500, text="internal error of the extender; see its log")
