"""The console's HTTP server: static files, responses from the history, and an event stream. Read-only."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from slacktide.agents.cluster.bounds import Bounds
from slacktide.agents.listening import bracketed, listening
from slacktide.deploy.console.answers import BadQuestionError, NotKeptError
from slacktide.deploy.console.guarding import CHALLENGE, HEADERS, certificate, refusal
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.live import Live
from slacktide.deploy.console.metrics import VIEWERS
from slacktide.deploy.runtime.endpoints import PROCESS
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.health import Health

KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
log = logging.getLogger(__name__)
VIEWERS_MAX = 200
"""Limit for concurrent event streams."""
CLOSING_S = 1.0
RETRY_MS = 2_000
LIVE, METRICS, TICKS = "/live", "/metrics", "/api/ticks"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def page_files() -> dict[str, tuple[bytes, str, str]]:
    """Return body, content type and ETag of the static files by path, such as ``views/node.js``."""
    return dict(_under(files("slacktide.deploy.console") / "pages", ""))


def _under(folder: Traversable, prefix: str) -> Iterator[tuple[str, tuple[bytes, str, str]]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _under(one, f"{prefix}{one.name}/")
        elif (kind := KINDS.get(one.name[one.name.rfind(".") :])) is not None:
            body = one.read_bytes()
            yield prefix + one.name, (body, kind, f'"{hashlib.sha256(body).hexdigest()[:16]}"')


class ServerError(SlacktideError):
    """The server cannot listen on the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Address and access control."""

    host: str
    port: int
    """0: any free port."""
    token: Callable[[], str] | None = None
    """Returns the token that requests need; None: loopback needs none."""
    cert_folder: Path | None = None
    """The folder of certificate and key; None: no TLS."""


@asynccontextmanager
async def serving(
    history: History, listen: Listen, health: Health, trouble: Callable[[], str] = lambda: ""
) -> AsyncIterator[str]:
    """Serve until the context exits; yield the URL. ``trouble``: why recording has stopped; "": it runs.

    Raises ServerError if it cannot listen on the address, CertificateError if the certificate is invalid.
    """
    tls = None if listen.cert_folder is None else certificate(listen.cert_folder)
    pages = _Pages(Live(history, trouble), health, listen.token)
    bounds = Bounds(lasting=frozenset({TICKS}))
    app = web.Application(middlewares=[pages.guarded, bounds.middleware], client_max_size=1)
    app.router.add_get(LIVE, pages.live)
    app.router.add_get(METRICS, pages.metrics)
    app.router.add_get(TICKS, pages.ticks)
    app.router.add_get("/api/{question}", pages.answer)
    app.router.add_get("/{path:.*}", pages.file)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSING_S, handle_signals=False)
    await runner.setup()
    await pages.shown.turn()
    ticking = asyncio.create_task(pages.shown.run())
    try:
        try:
            await web.SockSite(runner, listening(listen.host, listen.port), ssl_context=tls).start()
        except OSError as exc:
            raise ServerError(
                f"{listen.host}:{listen.port}: {exc.strerror}; choose another address with --listen"
            ) from exc
        async with bounds.kept(runner):
            yield f"http{'s' if tls else ''}://{bracketed(listen.host)}:{runner.addresses[0][1]}"
    finally:
        ticking.cancel()
        pages.close()
        await runner.cleanup()


class _Pages:
    """Request handlers."""

    def __init__(self, shown: Live, health: Health, token: Callable[[], str] | None) -> None:
        self.shown = shown
        self._health = health
        self._token = token
        self._files = page_files()
        self._viewers: set[asyncio.Task[Any]] = set()

    @web.middleware
    async def guarded(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answer every request, also one that fails unexpectedly, with the headers."""
        try:
            return await self._answered(request, handler)
        except web.HTTPException as exc:
            return _text(exc.status, exc.reason)
        except Exception:
            log.exception("cannot handle a request", extra={"path": ascii(request.path)})
            return _text(500, "the request failed; the console's log has the reason")

    async def _answered(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse unauthorized requests."""
        headers = request.headers
        token = "" if self._token is None else self._token()
        refused = refusal(token, headers.get("Host", ""), headers.get("Authorization", ""))
        if refused is None or request.path == LIVE:
            return await handler(request)
        response = _text(*refused)
        if refused[0] == web.HTTPUnauthorized.status_code:
            response.headers["WWW-Authenticate"] = CHALLENGE
        return response

    async def live(self, _: web.Request) -> web.Response:
        """Respond 200, or 503 with the reason. The response has the process id, for the supervisor."""
        response = _text(503, self._health.not_live) if self._health.not_live else _text(200, "ok")
        response.headers[PROCESS] = str(os.getpid())
        return response

    async def metrics(self, request: web.Request) -> web.Response:
        """Return all metrics of the process, in the requested format."""
        encoder, kind = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encoder(REGISTRY), headers=HEADERS | {"Content-Type": kind})

    async def file(self, request: web.Request) -> web.Response:
        """Return a static file."""
        found = self._files.get(request.match_info["path"] or "index.html")
        if found is None:
            return _text(404, "no such page")
        body, kind, etag = found
        headers = HEADERS | {"ETag": etag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)

    async def answer(self, request: web.Request) -> web.Response:
        """Return the response as JSON; {"error"} on failure."""
        try:
            found = await self.shown.ask(request.match_info["question"], dict(request.query))
        except NotKeptError as exc:
            return _json(404, {"error": str(exc)})
        except BadQuestionError as exc:
            return _json(400, {"error": str(exc)})
        except SlacktideError as exc:
            log.warning("cannot handle a request", extra={"path": request.path, "why": str(exc)})
            return _json(503, {"error": str(exc)})
        headers = HEADERS | {"Cache-Control": "no-store"}
        body = found.body
        if found.gzipped and "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
        elif found.gzipped:
            body = gzip.decompress(body)
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def ticks(self, request: web.Request) -> web.StreamResponse:
        """Send a tick each second until the viewer disconnects or the console ends."""
        if len(self._viewers) >= VIEWERS_MAX:
            return _text(503, f"the maximum of {VIEWERS_MAX} clients is already connected")
        task = asyncio.current_task()
        assert task is not None
        response = web.StreamResponse(headers=HEADERS | {"Cache-Control": "no-store"})
        response.content_type = "text/event-stream"
        self._viewers.add(task)
        VIEWERS.set(len(self._viewers))
        try:
            await response.prepare(request)
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            async for tick in self.shown.ticks():
                await response.write(tick)
        except ConnectionError:  # the viewer disconnected
            pass
        except Exception:  # the response has begun, so it can only end
            log.exception("cannot send ticks")
        finally:
            self._viewers.discard(task)
            VIEWERS.set(len(self._viewers))
        return response

    def close(self) -> None:
        """Disconnect the viewers."""
        for task in list(self._viewers):
            task.cancel()


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=HEADERS)


def _json(status: int, body: dict[str, str]) -> web.Response:
    return web.json_response(body, status=status, headers=HEADERS | {"Cache-Control": "no-store"})
