"""HTTP endpoints of a process: ``/metrics`` for Prometheus, ``/live``, ``/ready``, ``/fresh``; ``/`` links them."""

from __future__ import annotations

import gzip
import html
import os
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Self

from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from slacktide.agents.clock import SystemClock
from slacktide.agents.listening import bracketed
from slacktide.deploy.runtime.http_server import HttpServer, Request, Response
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.health import Health

PROCESS = "X-Process-Id"
"""Header with the process id: another process may have the port."""
PAGES = {
    "/metrics": "metrics in the format of Prometheus",
    "/live": "whether the process works: status 200, or 503 with the reason",
    "/ready": "whether it has all that it needs to start",
    "/fresh": "whether its inputs are up to date",
}
OPEN_METRICS = "application/openmetrics-text"
REUSED_TIMES = 10
"""Metrics are cached for this multiple of their rendering time, so scrapes use at most 10% of a CPU."""


class EndpointsError(SlacktideError):
    """The server cannot listen on the address."""


class Endpoints:
    """Served on a separate thread, even while the event loop is busy.

    ``/live``, ``/ready`` and ``/fresh`` respond 200, or 503 with the reason as text. ``/`` links all of them.
    """

    def __init__(
        self, host: str, port: int, health: Health, stuck: Callable[[], str] = lambda: "", *, name: str = ""
    ) -> None:
        self._name = name
        self._health = health
        self._stuck = stuck
        self._metrics = _Metrics()
        try:
            self._server = HttpServer(host, port, self._answer)
        except OSError as exc:
            raise EndpointsError(
                f"{host}:{port}: {exc.strerror}; choose another address with --metrics-host and --metrics-port"
            ) from exc
        self.url = f"http://{bracketed(host)}:{self._server.port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def _answer(self, request: Request) -> Response:
        match request.path:
            case "/":
                return _index(self._name)
            case "/metrics":
                return self._metrics.response(request)
            case "/live":
                return _health(self._health.not_live or self._stuck())
            case "/ready":
                return _health(self._health.not_ready)
            case "/fresh":
                return _health(self._health.not_fresh)
            case path:
                return _text(HTTPStatus.NOT_FOUND, f"no page {path}; available: /, {', '.join(PAGES)}")


@dataclass(frozen=True, slots=True)
class _Rendered:
    response: Response
    until_ns: int


class _Metrics:
    """All metrics of the process, in Prometheus' formats."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._rendered: dict[tuple[str, bool], _Rendered] = {}

    def response(self, request: Request) -> Response:
        """Render the metrics as text, gzipped if the client accepts it."""
        # Not keyed by the whole Accept header, which would grow the cache.
        open_metrics = OPEN_METRICS in request.headers.get("accept", "")
        encoder, content_type = choose_encoder(f"{OPEN_METRICS}; version=1.0.0" if open_metrics else "text/plain")
        packed = "gzip" in request.headers.get("accept-encoding", "")
        began_ns = self._clock.mono_ns()
        known = self._rendered.get((content_type, packed))
        if known is not None and began_ns < known.until_ns:
            return known.response
        body = encoder(REGISTRY)
        headers = {"Content-Type": content_type, PROCESS: str(os.getpid())}
        if packed:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        response = Response(status=HTTPStatus.OK, headers=headers, body=body)
        took_ns = self._clock.mono_ns() - began_ns
        self._rendered[content_type, packed] = _Rendered(response, began_ns + REUSED_TIMES * took_ns)
        return response


def _health(why_not: str) -> Response:
    return _text(HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK, why_not or "ok")


def _index(name: str) -> Response:
    title = html.escape(f"slacktide {name}".strip())
    items = "".join(f'<li><a href="{path}">{path}</a>: {text}</li>\n' for path, text in PAGES.items())
    page = f'<!DOCTYPE html>\n<html lang="en"><title>{title}</title>\n<h1>{title}</h1>\n<ul>\n{items}</ul>\n</html>'
    return _text(HTTPStatus.OK, page, "text/html")


def _text(status: HTTPStatus, text: str, kind: str = "text/plain") -> Response:
    headers = {"Content-Type": f"{kind}; charset=utf-8", PROCESS: str(os.getpid())}
    return Response(status=status, headers=headers, body=f"{text}\n".encode())
