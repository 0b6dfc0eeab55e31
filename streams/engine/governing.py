"""The eviction governor on aiokafka. Leader election picks one worker; all others stand by.

A term ends when leadership is lost or Kafka is unavailable. The worker in the same process goes on in any case.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slacktide.schemas.access import GOVERNOR_GROUP
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import CREDIT, METRIC, OUTCOME, POLICY
from slacktide.streams.engine import metrics
from slacktide.streams.engine.leader_election import LeaderElection, campaign, mono_ms
from slacktide.streams.freshness.silence import REPUBLISH_MS
from slacktide.streams.governor.governor import Governor
from slacktide.streams.kafka import WHOLE, Refused, Sender, Tail, places_of, present
from slacktide.streams.records import Out, Record

log = logging.getLogger(__name__)

SEND_S = 3.0
FETCH_WAIT_MS = 1_000
GATHER_MS = 1_000
"""Evictions are rare, and metrics come all the time: the governor reads and grants so often."""
TICK_MS = 1_000
"""While only metrics come: they change no request, and a round looks at all nodes."""
LATER_MS = 6_000
"""Added to the interval: a metric waits for a sample, and clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernorSettings:
    """Connection of a candidate."""

    bootstrap: Cluster
    group: str = GOVERNOR_GROUP
    session_timeout_ms: int = 6_000
    """The group elects another governor after this time without a heartbeat."""
    republish_ms: int = REPUBLISH_MS
    """Workers publish the metric of each node again within this time."""


async def govern(
    governor: Governor, settings: GovernorSettings, stop: asyncio.Event, now_ms: Callable[[], int]
) -> None:
    """Be a candidate until ``stop`` is set; ``governor`` grants evictions.

    ``now_ms``: wall clock, UTC epoch milliseconds.
    """
    await campaign(lambda: _Candidate(governor, settings, now_ms).run(stop), stop, "governor")


class _Candidate:
    def __init__(self, governor: Governor, settings: GovernorSettings, now_ms: Callable[[], int]) -> None:
        self._governor, self._settings, self._now_ms = governor, settings, now_ms
        self._election = LeaderElection(settings.bootstrap, CREDIT, settings.group, settings.session_timeout_ms)

    async def run(self, stop: asyncio.Event) -> None:
        """Join the group, govern while elected, leave."""
        try:
            # Check first: a client that requests a missing topic may create it with another number of partitions.
            await _checked_partitions(self._settings.bootstrap)
            await self._election.join()
            while not stop.is_set():
                await self._election.stay()
                if self._election.elected:
                    await self._govern(stop)
        finally:
            metrics.GOVERNS.set(0)
            await self._election.leave()

    async def _govern(self, stop: asyncio.Event) -> None:
        governor, settings = self._governor, self._settings
        async with (
            Tail(settings.bootstrap, FETCH_WAIT_MS, gather_ms=GATHER_MS) as tail,
            Sender(settings.bootstrap, client_id="slacktide-governor", timeout_s=SEND_S) as sender,
        ):
            await _write(sender, await self._begin(tail), governor.send_ms)
            metrics.GOVERNS.set(1)
            log.info("elected as the eviction governor", extra={"epoch": governor.epoch})
            looked_ms, ticked_ms = mono_ms(), 0
            while self._election.elected and not stop.is_set():
                records = await tail.more(GATHER_MS / 1_000)
                outs = governor.receive(records, mono_ms())
                await self._election.stay(wait_s=0.0)
                if mono_ms() - looked_ms > self._settings.session_timeout_ms:
                    await tail.check()
                    looked_ms = mono_ms()
                asked = any(record.topic != METRIC.name for record in records)
                due = self._election.leads and (asked or mono_ms() >= ticked_ms + TICK_MS)
                if due:
                    if governor.superseded:
                        raise LogError("another governor has a higher epoch")
                    self._election.check()
                    ticked_ms = mono_ms()
                    outs += governor.tick(ticked_ms, self._now_ms())
                await _write(sender, outs, governor.send_ms)
                if due:
                    figures = governor.figures()
                    metrics.LEASES.inc(sum(out.topic == CREDIT.name and out.value is not None for out in outs))
                    metrics.CREDITS.inc(figures.granted)
                    metrics.OUTSTANDING.set(figures.outstanding)
                    metrics.SPENT.set(figures.spent)
                    metrics.BUDGET.set(figures.budget)
                    metrics.WAITING.set(figures.waiting)
        metrics.GOVERNS.set(0)
        log.info("no longer the eviction governor", extra={"epoch": governor.epoch})

    async def _begin(self, tail: Tail) -> list[Out]:
        governor = self._governor
        counts = await _checked_partitions(self._settings.bootstrap)
        governor.receive((await tail.read({(POLICY.name, 0): WHOLE})).records, mono_ms())
        since_ms = self._now_ms() - governor.read_back_ms()
        published_ms = self._now_ms() - self._settings.republish_ms - LATER_MS
        since = {POLICY.name: WHOLE, CREDIT.name: WHOLE, OUTCOME.name: since_ms, METRIC.name: published_ms}
        read = (await tail.read(places_of(counts, since), _wanted)).records
        by_topic: dict[str, list[Record]] = {name: [] for name in counts}
        for record in read:
            by_topic[record.topic].append(record)
        now_ms = mono_ms()
        outs = governor.begin(by_topic[CREDIT.name], by_topic[OUTCOME.name], since_ms, now_ms)
        return outs + governor.receive(by_topic[POLICY.name] + by_topic[METRIC.name], now_ms)


_TOPICS = (POLICY, CREDIT, OUTCOME, METRIC)


async def _checked_partitions(bootstrap: Cluster) -> dict[str, int]:
    counts = await present(bootstrap, [topic.name for topic in _TOPICS])
    if counts[CREDIT.name] != 1:
        raise LogError(f"{CREDIT.name} has {counts[CREDIT.name]} partitions: with more than one, several would govern")
    return counts


def _wanted(record: Record) -> bool:
    """Skip outcomes without credit before they are decoded; they are most of all records."""
    return record.topic != OUTCOME.name or b'"spent"' in (record.value or b"")


async def _write(sender: Sender, outs: Sequence[Out], within_ms: int) -> None:
    """Write all records; fail if they take longer: the governor no longer counts on a lease that is late."""
    if not outs:
        return
    try:
        async with asyncio.timeout(within_ms / 1_000):
            results = await sender.send_each(outs)
    except TimeoutError as exc:
        raise LogError(f"leases were not acknowledged within {within_ms} ms") from exc
    refusals = [result for result in results if isinstance(result, Refused)]
    refused = [refusal.out for refusal in refusals]
    metrics.count_written([out for out in outs if out not in refused])
    for refusal in refusals:
        log.error("Kafka refused a record", extra={"topic": refusal.out.topic, "why": refusal.why})
