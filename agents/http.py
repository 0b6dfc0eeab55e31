"""HTTP requests with a limit of total time and size. Blocking: run it in a thread."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, IncompleteRead
from typing import Self

from slacktide.schemas.errors import SlacktideError

TIMEOUT_S = 5.0
BYTES_MAX = 32 * 1024 * 1024
_SECONDS = re.compile(r"[0-9]{1,6}")


class HttpError(SlacktideError):
    """A server is unreachable, or its response is unusable."""


class UnreachedError(HttpError):
    """No connection was made: the server certainly did not receive the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A complete response."""

    status: int
    body: bytes
    retry_after_s: int | None = None
    """``Retry-After``, if the server gives it in seconds."""

    @property
    def words(self) -> str:
        """The beginning of the body, for a message."""
        text = self.body[:200].decode(errors="replace")
        return " ".join("".join(one if one.isprintable() else " " for one in text).split())


def ask(connection: HTTPConnection, request: Request) -> Answer:
    """Send a request over a kept connection, or a new one if it was closed.

    If a kept connection fails, the request is sent again, so it must be idempotent.

    Raises:
        HttpError: no complete HTTP response within 5 s and 32 MiB.
        UnreachedError: no connection.
        OSError: the connection failed.
    """
    kept = connection.sock is not None
    with _Deadline(connection) as deadline:
        try:
            if not kept:
                _connect(connection)
            return _exchange(connection, request)
        except (OSError, HTTPException) as exc:
            connection.close()
            if deadline.passed or isinstance(exc, TimeoutError):
                raise HttpError(f"incomplete answer after {TIMEOUT_S:g} s") from exc
            if not kept and isinstance(exc, HTTPException):
                raise HttpError(f"incomplete, or not HTTP: {exc!r}") from exc
            if not kept:
                raise
    # A server may close a kept connection at any time.
    return ask(connection, request)


def _connect(connection: HTTPConnection) -> None:
    try:
        connection.connect()
    except OSError as exc:
        if connection.sock is not None:
            raise  # connected, but TLS failed
        raise UnreachedError(f"no connection: {exc.strerror or exc}") from exc


def _exchange(connection: HTTPConnection, request: Request) -> Answer:
    connection.request(request.method, request.path, body=request.body, headers=dict(request.headers))
    response = connection.getresponse()
    body = response.read(BYTES_MAX + 1)
    if len(body) > BYTES_MAX:
        connection.close()
        raise HttpError(f"the answer is larger than {BYTES_MAX // 1024**2} MiB")
    if response.length:  # with a size limit, a truncated body is not detected otherwise
        raise IncompleteRead(body, response.length)
    after = response.headers.get("Retry-After", "")
    return Answer(status=response.status, body=body, retry_after_s=int(after) if _SECONDS.fullmatch(after) else None)


class _Deadline:
    """Ends a request after a total time. A socket timeout restarts with each byte received."""

    def __init__(self, connection: HTTPConnection) -> None:
        self.passed = False
        self._connection = connection
        self._timer = threading.Timer(TIMEOUT_S, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _cut(self) -> None:
        self.passed = True
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                # Below TLS, to wake a blocked read.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
