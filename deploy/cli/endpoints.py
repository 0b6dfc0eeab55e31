"""What a process tells over HTTP: ``/metrics`` for Prometheus, ``/live``, ``/ready``, ``/fresh``."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.health import Health

PROCESS = "X-Process-Id"
"""The header in which a process says which one it is: another one may have the port."""

Start = Callable[[str, list[tuple[str, str]]], Any]


class EndpointsError(SlacktideError):
    """The address could not be had."""


class Endpoints:
    """A small HTTP server on threads of its own: it answers also while the process' loop is busy.

    ``/live``, ``/ready`` and ``/fresh`` answer 200, or 503 with the reason as text.
    """

    def __init__(self, host: str, port: int, health: Health, stuck: Callable[[], str] = lambda: "") -> None:
        self._health = health
        self._stuck = stuck
        self._metrics: Any = make_wsgi_app()
        try:
            self._server: WSGIServer = make_server(host, port, self._answer, ThreadingWSGIServer, _Silent)
        except OSError as exc:
            raise EndpointsError(
                f"{host}:{port}: {exc.strerror}; choose another address with --metrics-host and --metrics-port"
            ) from exc
        self.url = f"http://{host}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.5,), name="endpoints", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        match environ.get("PATH_INFO", ""):
            case "/metrics":
                answer: Iterable[bytes] = self._metrics(environ, start)
                return answer
            case "/live":
                return _said(start, self._health.not_live or self._stuck())
            case "/ready":
                return _said(start, self._health.not_ready)
            case "/fresh":
                return _said(start, self._health.not_fresh)
            case path:
                return _text(start, "404 Not Found", f"no {path}: /metrics, /live, /ready, /fresh")


def _said(start: Start, why_not: str) -> Iterable[bytes]:
    return _text(start, "503 Service Unavailable" if why_not else "200 OK", why_not or "ok")


def _text(start: Start, status: str, text: str) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), (PROCESS, str(os.getpid()))])
    return [f"{text}\n".encode()]


class _Silent(WSGIRequestHandler):
    """No line per request: probes come every second."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class' name
        """Say nothing."""
