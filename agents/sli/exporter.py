"""Asks Prometheus for the latency of services every minute or so, and publishes it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from slacktide.agents.prometheus import PrometheusError, Sample
from slacktide.agents.sli.metrics import FAILED, PUBLISHED, SKIPPED
from slacktide.agents.sli.series import Naming, latencies
from slacktide.schemas.backoff import Backoff, Reasons
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError, SlacktideError
from slacktide.schemas.health import Health
from slacktide.schemas.service import ServiceSli
from slacktide.schemas.topics import SERVICE_SLI
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out, event
from slacktide.streams.tasks import until_one_ends

log = logging.getLogger(__name__)

SOURCE: Final = "sli"
ATTEMPTS: Final = 3
"""Of a query in one round."""
RETRY_S, RETRY_MAX_S = 1.0, 4.0
ANSWER_S: Final = 20.0
"""Total time of an answer: that of the client begins anew with each byte."""
AT_ONCE: Final = 500
"""Most records in flight, so that each batch is acknowledged in time."""
SHOWN: Final = 300
"""Characters of a series in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliSettings:
    """What is asked, and what its answers are."""

    bootstrap: Cluster
    queries: Sequence[str]
    naming: Naming
    every_ms: int
    span_ms: int
    """How long the queries count requests."""
    target_us: int | None = None


class Exporter:
    """Publishes the answers of all queries. ``ask``: returns the series of one; it may block."""

    def __init__(self, settings: SliSettings, ask: Callable[[str], Sequence[Sample]], health: Health) -> None:
        self._settings, self._ask, self._health = settings, ask, health
        self._sender = Sender(settings.bootstrap, client_id=f"slacktide-{SOURCE}", acks="1")
        self._away, self._skipped = Reasons(), Reasons()
        self._refused = {query: Reasons() for query in settings.queries}

    async def run(self, stop: asyncio.Event) -> None:
        """Ask and publish until ``stop`` is set."""
        try:
            await until_one_ends(self._rounds(), stop.wait())
        finally:
            await self._sender.close()

    async def _rounds(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            failed = [why for query in self._settings.queries if (why := await self._turn(query))]
            self._health.not_fresh = "; ".join(failed)
            await asyncio.sleep(max(0.0, began_s + self._settings.every_ms / 1_000 - loop.time()))

    async def _turn(self, query: str) -> str:
        """Ask one query and publish what it returns. Return why Prometheus has not answered; "": it has."""
        given = self._settings
        try:
            samples = await self._answer(query)
        except SlacktideError as exc:
            if self._refused[query].is_new(str(exc)):
                log.warning("no latency from Prometheus", extra={"query": query, "why": str(exc)})
            return str(exc)
        self._refused[query].reset()
        found = latencies(samples, given.naming, given.span_ms, given.target_us)
        if not samples and self._skipped.is_new(f"none {query}"):
            log.warning("the query returns no series", extra={"query": query})
        for why, count in found.skipped.items():
            SKIPPED.labels(why).inc(count)
            if self._skipped.is_new(f"{why} {query}"):
                example = str(dict(found.examples[why]))[:SHOWN]
                log.warning("series are skipped", extra={"query": query, "why": why, "series": count, "one": example})
        await self._publish(found.slis)
        return ""

    async def _answer(self, query: str) -> Sequence[Sample]:
        backoff = Backoff(RETRY_S, RETRY_MAX_S)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await asyncio.to_thread(self._ask, query)
            except (SlacktideError, TimeoutError) as exc:
                FAILED.inc()
                if attempt == ATTEMPTS and isinstance(exc, SlacktideError):
                    raise
            await asyncio.sleep(backoff.next_s())
        raise PrometheusError(f"no complete answer within {ANSWER_S:.0f} s; a query of fewer series is faster")

    async def _publish(self, slis: Sequence[ServiceSli]) -> None:
        """Publish what is acknowledged at once: a latency that comes late has no minutes to compare it with."""
        left = len(slis)
        try:
            if not self._sender.connected:
                await self._sender.connect([SERVICE_SLI.name])
            for first in range(0, len(slis), AT_ONCE):
                some = slis[first : first + AT_ONCE]
                await self._sender.send([record_of(one) for one in some])
                PUBLISHED.inc(len(some))
                left -= len(some)
        except LogError as exc:
            SKIPPED.labels("kafka").inc(left)
            if self._away.is_new(str(exc)):
                log.warning("Kafka is unreachable", extra={"for": SOURCE, "why": str(exc)})
            self._health.not_ready = str(exc)
            return
        self._away.reset()
        self._health.not_ready = ""


def record_of(sli: ServiceSli) -> Out:
    """Return the record of a latency."""
    which = f"{sli.service}/{sli.node}/{sli.observed_ms}"
    return event(SERVICE_SLI.name, sli.service, encode(sli), source=SOURCE, event_id=which, event_ms=sli.observed_ms)
