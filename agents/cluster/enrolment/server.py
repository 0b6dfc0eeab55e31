"""The HTTPS server that issues keys to agents. It handles one bounded request per connection from untrusted clients."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus

from slacktide.agents.listening import listening
from slacktide.schemas.errors import SlacktideError, TextError
from slacktide.schemas.proof import ENROL_PATH
from slacktide.schemas.text import integer_of

log = logging.getLogger(__name__)

HEAD_BYTES_MAX = 16 * 1024
"""A pod-bound token has 1 to 2 KiB."""
BODY_BYTES_MAX = 1024
REQUEST_S = 5.0
"""For the handshake, and again for the request."""
ANSWER_S = 20.0
CONNECTIONS_MAX = 256
RATE_PER_S, BURST = 50.0, 200.0
"""10,000 agents that enrol twice a day make one request in four seconds."""
RETRY_AFTER_S = 10


class ServerError(SlacktideError):
    """The server cannot listen on the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response."""

    status: HTTPStatus
    body: bytes = b""


class Bucket:
    """A token bucket."""

    def __init__(self, now_s: Callable[[], float], rate: float = RATE_PER_S, burst: float = BURST) -> None:
        self._now_s, self._rate, self._burst = now_s, rate, burst
        self._left, self._at_s = burst, now_s()

    def take(self) -> bool:
        """Return whether one more request is allowed."""
        now_s = self._now_s()
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


@asynccontextmanager
async def serving(
    answer: Callable[[str], Awaitable[Reply]], context: ssl.SSLContext, host: str, port: int
) -> AsyncIterator[int]:
    """Serve until left; yields the port. ``answer`` handles a bearer token, and does not raise. Port 0: any free port.

    Raises:
        ServerError: the server cannot listen on the address.
    """
    asked = _Asked(answer)
    try:
        server = await asyncio.start_server(
            asked.handle, sock=listening(host, port), ssl=context, ssl_handshake_timeout=REQUEST_S, limit=HEAD_BYTES_MAX
        )
    except OSError as exc:
        raise ServerError(f"{host}:{port}: {exc.strerror}; choose another port with --enrol-port") from exc
    async with server:
        yield server.sockets[0].getsockname()[1]


class _Asked:
    def __init__(self, answer: Callable[[str], Awaitable[Reply]]) -> None:
        self._answer = answer
        self._open = 0
        self._bucket = Bucket(asyncio.get_running_loop().time)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        self._open += 1
        try:
            reply = await self._reply(reader)
            if reply is not None:
                writer.write(_encoded(reply))
                async with asyncio.timeout(REQUEST_S):
                    await writer.drain()
        except (OSError, TimeoutError):
            pass  # the client disconnected or timed out
        finally:
            self._open -= 1
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(REQUEST_S):
                    await writer.wait_closed()

    async def _reply(self, reader: asyncio.StreamReader) -> Reply | None:
        if self._open > CONNECTIONS_MAX or not self._bucket.take():
            return Reply(status=HTTPStatus.TOO_MANY_REQUESTS)
        try:
            async with asyncio.timeout(REQUEST_S):
                token = await _token_in(reader)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, TimeoutError):
            return None
        if isinstance(token, Reply):
            return token
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._answer(token)
        except TimeoutError:
            return Reply(status=HTTPStatus.GATEWAY_TIMEOUT)


async def _token_in(reader: asyncio.StreamReader) -> str | Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    try:
        await reader.readexactly(integer_of(length, where="Content-Length", least=0, most=BODY_BYTES_MAX))
    except TextError:
        return Reply(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    if first.split(" ")[:2] != ["POST", ENROL_PATH]:
        return Reply(status=HTTPStatus.NOT_FOUND)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        return Reply(status=HTTPStatus.UNAUTHORIZED)
    return token.strip()


def _encoded(reply: Reply) -> bytes:
    lines = [
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}",
        "Content-Type: application/json",
        "Cache-Control: no-store",
        "Connection: close",
        f"Content-Length: {len(reply.body)}",
    ]
    if reply.status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        lines.append(f"Retry-After: {RETRY_AFTER_S}")
    return "\r\n".join([*lines, "", ""]).encode() + reply.body
