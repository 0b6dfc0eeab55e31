"""The console's HTTP server: static files, responses from the history, and an event stream. Read-only."""

import asyncio
import gzip
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder

from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.request_bounds import RequestBounds
from slacktide.agents.listening import bracketed, listening
from slacktide.deploy.console import metrics
from slacktide.deploy.console.answers import DIGITS_MAX, QUESTIONS, BadQuestionError, NotKeptError, Question, answer
from slacktide.deploy.console.guarding import CHALLENGE, HEADERS, certificate, refusal
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import Bounds
from slacktide.deploy.runtime.endpoints import PROCESS
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.health import Health
from slacktide.streams.records import Record
from slacktide.streams.tasks import ended, unwatched

log = logging.getLogger(__name__)
KINDS = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json",
    ".svg": "image/svg+xml",
}  # fmt: skip
VIEWERS_MAX = 200
"""Limit for concurrent event streams."""
CLOSING_S = 1.0
RETRY_MS = 2_000
LIVE, METRICS, TICKS = "/live", "/metrics", "/api/ticks"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
TICK_S = 1.0
OF_NODE = frozenset({"node", "pod", "explain", "records"})
"""Requests that are explained by the records of a node."""
ANSWERS_MAX = 256
"""Cached responses per tick."""
EVER_MS = 1 << 62
GZIP_BYTES_MIN = 1_400
"""Smaller responses fit a packet uncompressed."""
_encoder = msgspec.json.Encoder(enc_hook=str)


@dataclass(frozen=True, slots=True)
class Packed:
    """A response, encoded for many viewers."""

    body: bytes
    gzipped: bool


class Live:
    """Reads the history for all viewers, on one thread. ``trouble``: why recording has stopped; "": it runs."""

    def __init__(self, history: History, trouble: Callable[[], str]) -> None:
        self._history = history
        self._trouble = trouble
        self._clock = SystemClock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="console-history")
        self._answers: dict[tuple[str, frozenset[tuple[str, str]], int], asyncio.Future[Packed]] = {}
        self._bounds: Bounds | None = None
        self._ticked = asyncio.Condition()
        self._number = 0
        self.tick = b""
        """The newest tick as a server-sent event."""

    async def run(self) -> None:
        """Tick until cancelled."""
        try:
            while True:
                await asyncio.sleep(TICK_S)
                try:
                    await self.turn()
                except Exception:  # the next tick may succeed
                    log.exception("cannot read the history")
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def turn(self) -> None:
        """Compute one tick from the extent of the history."""
        trouble = self._trouble()
        bounds = await asyncio.get_running_loop().run_in_executor(self._thread, self._history.bounds)
        note = "nothing" if bounds.newest_ms is None else "stalled" if trouble else ""
        self._bounds = bounds
        metrics.show(bounds, self._clock.wall_ms(), trouble)
        self._answers.clear()
        body = {"first_ms": bounds.oldest_ms, "now_ms": bounds.newest_ms, "note": note, "trouble": trouble}
        async with self._ticked:
            self._number += 1
            self.tick = b"event: tick\ndata: " + _encoder.encode(body) + b"\n\n"
            self._ticked.notify_all()

    async def ticks(self) -> AsyncIterator[bytes]:
        """Yield ticks from the newest on. Slow viewers miss some."""
        seen = 0
        while True:
            async with self._ticked:
                await self._ticked.wait_for(lambda: self._number > seen)  # noqa: B023 - asked at once
                seen, tick = self._number, self.tick
            yield tick

    async def ask(self, path: str, given: Mapping[str, str]) -> Packed:
        """Handle a request, or share the response with a concurrent one. Raises SlacktideError if it fails."""
        asked, at_ms = given.get("at", ""), (None if self._bounds is None else self._bounds.newest_ms) or 0
        if asked.isascii() and asked.isdigit() and len(asked) <= DIGITS_MAX:
            at_ms = min(int(asked), at_ms)
        key = (path, frozenset((name, value) for name, value in given.items() if name != "at"), at_ms)
        found = self._answers.get(key)
        if found is None or found.cancelled():
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            found = self._answers[key] = asyncio.ensure_future(self._answer(path, given, at_ms))
            unwatched(found)  # whoever asked may have gone
        return await asyncio.shield(found)

    async def _answer(self, path: str, given: Mapping[str, str], at_ms: int) -> Packed:
        history, turn = self._history, asyncio.get_running_loop().run_in_executor
        records: list[Record] = []
        node = await turn(self._thread, _node, history, given, at_ms) if path in OF_NODE else ""
        if node:
            end_ms = await turn(self._thread, history.end_ms, node, at_ms)
            elsewhere = await turn(self._thread, history.decisions.elsewhere, node, end_ms)
            records += await history.log.read(node, end_ms, elsewhere)
        if path == "records" and (of := given.get("of", "")):
            for offsets in await turn(self._thread, history.traces.sought, of, node, at_ms):
                if not (found := await history.log.read(node, EVER_MS, offsets)):
                    break  # Kafka is unavailable, or no longer has them
                records += found
        question = Question(at_ms=at_ms, given=given, records=records)
        return await turn(self._thread, _answered, history, path, question)


def _node(history: History, given: Mapping[str, str], at_ms: int) -> str:
    """Return the requested node, or the pod's; "": none."""
    return given.get("node") or (history.pods.node_of(given["pod"], at_ms) if given.get("pod") else "")


def _answered(history: History, path: str, question: Question) -> Packed:
    with metrics.ANSWER.labels(path if path in QUESTIONS else "unknown").time():
        body = _encoder.encode(answer(history, path, question))
    return Packed(gzip.compress(body, 1), gzipped=True) if len(body) >= GZIP_BYTES_MIN else Packed(body, gzipped=False)


def page_files(folder: Traversable | None = None, prefix: str = "") -> dict[str, tuple[bytes, str, str]]:
    """Return body, content type and ETag of the static files by path, such as ``views/node.js``."""
    found: dict[str, tuple[bytes, str, str]] = {}
    for one in (folder or files("slacktide.deploy.console") / "pages").iterdir():
        if one.is_dir():
            found |= page_files(one, f"{prefix}{one.name}/")
        elif (kind := KINDS.get(one.name[one.name.rfind(".") :])) is not None:
            body = one.read_bytes()
            found[prefix + one.name] = body, kind, f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return found


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
    bounds = RequestBounds(lasting=frozenset({TICKS}))
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
        await ended(ticking)
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
        """Refuse unauthorized requests, and answer also one that fails unexpectedly with the headers."""
        headers = request.headers
        try:
            token = "" if self._token is None else self._token()
            refused = refusal(token, headers.get("Host", ""), headers.get("Authorization", ""))
            if refused is None or request.path == LIVE:
                return await handler(request)
        except web.HTTPException as exc:
            return _text(exc.status, exc.reason)
        except Exception:
            log.exception("cannot handle a request", extra={"path": ascii(request.path)})
            return _text(500, "the request failed; the console's log has the reason")
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
        metrics.VIEWERS.set(len(self._viewers))
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
            metrics.VIEWERS.set(len(self._viewers))
        return response

    def close(self) -> None:
        """Disconnect the viewers."""
        for task in list(self._viewers):
            task.cancel()


def _text(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=HEADERS)


def _json(status: int, body: dict[str, str]) -> web.Response:
    return web.json_response(body, status=status, headers=HEADERS | {"Cache-Control": "no-store"})
