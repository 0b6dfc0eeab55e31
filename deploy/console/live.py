"""Serves all viewers from one history: a tick each second, and each response computed once per tick."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.deploy.console import metrics
from slacktide.deploy.console.answers import DIGITS_MAX, QUESTIONS, Question, answer
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import Bounds
from slacktide.streams.records import Record

log = logging.getLogger(__name__)
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
        newest_ms = None if self._bounds is None else self._bounds.newest_ms
        at_ms = _moment(given.get("at", ""), newest_ms or 0)
        key = (path, frozenset((name, value) for name, value in given.items() if name != "at"), at_ms)
        found = self._answers.get(key)
        if found is None or found.cancelled():
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            found = self._answers[key] = asyncio.ensure_future(self._answer(path, given, at_ms))
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


def _moment(text: str, newest_ms: int) -> int:
    """Return the requested moment, at most the newest; without one the newest."""
    return min(int(text), newest_ms) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else newest_ms


def _node(history: History, given: Mapping[str, str], at_ms: int) -> str:
    """Return the requested node, or the pod's; "": none."""
    return given.get("node") or (history.pods.node_of(given["pod"], at_ms) if given.get("pod") else "")


def _answered(history: History, path: str, question: Question) -> Packed:
    with metrics.ANSWER.labels(path if path in QUESTIONS else "unknown").time():
        body = _encoder.encode(answer(history, path, question))
    return Packed(gzip.compress(body, 1), gzipped=True) if len(body) >= GZIP_BYTES_MIN else Packed(body, gzipped=False)
