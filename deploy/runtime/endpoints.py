"""HTTP endpoints of a process: ``/metrics`` for Prometheus, ``/live``, ``/ready``, ``/fresh``; ``/`` links them."""

from __future__ import annotations

import gzip
import html
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Self

from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from slacktide.agents.clock import SystemClock
from slacktide.agents.listening import bracketed, listening
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
log = logging.getLogger(__name__)
CONNECTIONS_MAX = 256
"""Above this the oldest connection of the busiest address is closed, so that probes succeed in a flood."""
WRITING_MAX = 16
"""Limit for connections that are slow to read their response."""
HEAD_BYTES_MAX = 8 * 1024
SEND_BUFFER_BYTES = 32 * 1024
"""Kernel memory per connection, which counts for the container."""
HEAD_S, WRITE_S, CLOSING_S = 3.0, 5.0, 1.0
"""Timeouts of a whole request from the connection on, of its response, and of the client's disconnection."""
LOOK_S = 0.25
BACKLOG = 1_024
ACCEPTS = 64
"""Accepted connections in a row before existing ones are served."""


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
        def health(why_not: str) -> Response:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE if why_not else HTTPStatus.OK, why_not or "ok")

        match request.path:
            case "/":
                title = html.escape(f"slacktide {self._name}".strip())
                head = f'<!DOCTYPE html>\n<html lang="en"><title>{title}</title>\n<h1>{title}</h1>'
                items = "".join(f'<li><a href="{path}">{path}</a>: {text}</li>\n' for path, text in PAGES.items())
                return _text(HTTPStatus.OK, f"{head}\n<ul>\n{items}</ul>\n</html>", "text/html")
            case "/metrics":
                return self._metrics.response(request)
            case "/live":
                return health(self._health.not_live or self._stuck())
            case "/ready":
                return health(self._health.not_ready)
            case "/fresh":
                return health(self._health.not_fresh)
            case path:
                return _text(HTTPStatus.NOT_FOUND, f"no page {path}; available: /, {', '.join(PAGES)}")


class _Metrics:
    """All metrics of the process, in Prometheus' formats."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._rendered: dict[tuple[str, bool], tuple[Response, int]] = {}
        """Each with the time until which it is reused, in ns."""

    def response(self, request: Request) -> Response:
        """Render the metrics as text, gzipped if the client accepts it."""
        # Not keyed by the whole Accept header, which would grow the cache.
        open_metrics = OPEN_METRICS in request.headers.get("accept", "")
        encoder, content_type = choose_encoder(f"{OPEN_METRICS}; version=1.0.0" if open_metrics else "text/plain")
        packed = "gzip" in request.headers.get("accept-encoding", "")
        began_ns = self._clock.mono_ns()
        known, until_ns = self._rendered.get((content_type, packed), (None, 0))
        if known is not None and began_ns < until_ns:
            return known
        body = encoder(REGISTRY)
        headers = {"Content-Type": content_type, PROCESS: str(os.getpid())}
        if packed:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        response = Response(status=HTTPStatus.OK, headers=headers, body=body)
        took_ns = self._clock.mono_ns() - began_ns
        self._rendered[content_type, packed] = response, began_ns + REUSED_TIMES * took_ns
        return response


def _text(status: HTTPStatus, text: str, kind: str = "text/plain") -> Response:
    headers = {"Content-Type": f"{kind}; charset=utf-8", PROCESS: str(os.getpid())}
    return Response(status=status, headers=headers, body=f"{text}\n".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request without a body."""

    path: str
    headers: Mapping[str, str]
    """The headers by lower-case name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response, after which the connection is closed."""

    status: HTTPStatus
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, eq=False)
class _Connection:
    socket: socket.socket
    peer: str
    until_s: float
    received: bytearray = field(default_factory=bytearray)
    unsent: list[memoryview] = field(default_factory=list)
    """The unsent parts of the response. Equal responses share one body."""
    answered: bool = False


class HttpServer:
    """Serves GET on a separate thread, where ``answer`` is called: it must not block. Port 0: any free port.

    Raises OSError if the server cannot listen on the address.
    """

    def __init__(self, host: str, port: int, answer: Callable[[Request], Response]) -> None:
        self._answer = answer
        self._clock = SystemClock()
        self._listener = listening(host, port, backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._waker, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._by_peer: dict[str, dict[_Connection, None]] = {}
        """Connections by address, oldest first."""
        self._writing: dict[_Connection, None] = {}
        self._count = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="endpoints", daemon=True)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._stopping = True
        self._waker.close()  # ends a select without a time limit
        self._thread.join()
        for connection in [one for several in self._by_peer.values() for one in several]:
            self._drop(connection)
        self._selector.close()
        self._listener.close()
        self._woken.close()

    def _serve(self) -> None:
        looked_s = 0.0
        while not self._stopping:
            for key, _ in self._selector.select(LOOK_S if self._count else None):
                if key.data is None:
                    self._accept()
                elif key.data.socket.fileno() >= 0:  # unless it was just closed to make room
                    self._turn(key.data)
            if self._now_s() - looked_s >= LOOK_S:
                looked_s = self._now_s()
                open_now = [one for several in self._by_peer.values() for one in several]
                for connection in [one for one in open_now if one.until_s < looked_s]:
                    self._drop(connection)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            try:
                accepted, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # out of file descriptors: close the oldest
                self._make_room()
                return
            if self._count >= CONNECTIONS_MAX:
                self._make_room()
            accepted.setblocking(False)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
            connection = _Connection(accepted, address[0], self._now_s() + HEAD_S)
            self._by_peer.setdefault(connection.peer, {})[connection] = None
            self._count += 1
            self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _make_room(self) -> None:
        if self._by_peer:
            several = max(self._by_peer.values(), key=len)
            self._drop(next(iter(several)))

    def _turn(self, connection: _Connection) -> None:
        """Read or write what is possible."""
        try:
            if connection.unsent:
                self._write(connection)
            elif not (received := connection.socket.recv(HEAD_BYTES_MAX)):
                self._drop(connection)
            elif not connection.answered:  # data after a request is dropped
                connection.received += received
                self._respond(connection)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)
        except Exception:
            log.exception("cannot handle a request")
            self._drop(connection)

    def _respond(self, connection: _Connection) -> None:
        head, end, _ = bytes(connection.received).partition(b"\r\n\r\n")
        if end:
            answer = self._answer_to(head)
        elif len(connection.received) < HEAD_BYTES_MAX:
            return
        else:
            answer = _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {HEAD_BYTES_MAX} bytes")
        connection.answered, connection.received = True, bytearray()
        lines = [f"HTTP/1.1 {answer.status.value} {answer.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        lines += [f"Content-Length: {len(answer.body)}", "Connection: close", "", ""]
        body = b"" if head.startswith(b"HEAD ") else answer.body
        connection.unsent = [memoryview("\r\n".join(lines).encode("latin-1", "replace")), memoryview(body)]
        connection.until_s = self._now_s() + WRITE_S
        self._write(connection)

    def _answer_to(self, head: bytes) -> Response:
        first, *rest = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _plain(HTTPStatus.BAD_REQUEST, "not HTTP/1.1")
        if words[0] not in {"GET", "HEAD"}:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED, "GET, HEAD")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        return self._answer(Request(path=words[1].partition("?")[0], headers=headers))

    def _write(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.sendmsg(connection.unsent)
        except BlockingIOError:
            sent = 0
        left: list[memoryview] = []
        for part in connection.unsent:
            if sent < len(part):
                left.append(part[sent:])
            sent = max(0, sent - len(part))
        connection.unsent = left
        if connection.unsent:
            self._writing[connection] = None
            self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
            if len(self._writing) > WRITING_MAX:
                self._drop(next(iter(self._writing)))
            return
        self._writing.pop(connection, None)
        connection.until_s = self._now_s() + CLOSING_S
        connection.socket.shutdown(socket.SHUT_WR)
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    def _drop(self, connection: _Connection) -> None:
        several = self._by_peer[connection.peer]
        del several[connection]
        if not several:
            del self._by_peer[connection.peer]
        self._count -= 1
        self._writing.pop(connection, None)
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _now_s(self) -> float:
        return self._clock.mono_ns() / 1e9


def _plain(status: HTTPStatus, text: str) -> Response:
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = "GET, HEAD"
    return Response(status=status, headers=headers, body=f"{text}\n".encode())
