"""The queue's decider on aiokafka. Leader election picks one process; all others stand by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from slacktide.schemas.access import QUEUE_GROUP
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.schemas.queue import PodsReadySettings
from slacktide.schemas.topics import DEAD_LETTER, QUEUE_DECISION
from slacktide.streams.engine import queue_metrics as metrics
from slacktide.streams.engine.leader_election import LeaderElection, campaign, mono_ms
from slacktide.streams.engine.queue_selling import SellingWriter
from slacktide.streams.engine.queue_term import TOPICS, Credit, Term
from slacktide.streams.kafka import Sender, Tail, present

log = logging.getLogger(__name__)

SEND_S = 3.0
FETCH_WAIT_MS = 50
"""A new workload must be decided soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """Connection of a candidate."""

    bootstrap: Cluster
    process: str
    group: str = QUEUE_GROUP
    session_timeout_ms: int = 6_000
    """The group elects another decider after this time without a heartbeat."""
    fair_sharing: bool = False
    pods_ready: PodsReadySettings | None = None
    credit: Callable[[Tail, int, Sender], Credit] | None = None
    """Creates the client for eviction credit, from a reader, the term's epoch and a writer."""


async def run(settings: QueueSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]) -> None:
    """Be a candidate until ``stop`` is set, then leave the group; ``health``: ready while it decides or stands by."""
    await campaign(lambda: _candidate(settings, stop, health, now_ms), stop, "the queue's decider")


async def _candidate(settings: QueueSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]) -> None:
    election = LeaderElection(settings.bootstrap, QUEUE_DECISION, settings.group, settings.session_timeout_ms)
    health.not_ready = "not connected"
    try:
        # Check first: a client that requests a missing topic may create it with another number of partitions.
        counts = await present(settings.bootstrap, [topic.name for topic in (*TOPICS, DEAD_LETTER)])
        for name, count in counts.items():
            if count != 1:
                raise LogError(f"{name} has {count} partitions: the queue needs one order")
        await election.join()
        while not stop.is_set():
            health.not_ready, health.not_fresh = "", ""
            await election.stay()
            health.turned("queue")
            if election.elected:
                await _decide(election, settings, stop, health, now_ms)
    finally:
        health.not_ready = "not connected"
        metrics.DECIDES.set(0)
        await election.leave()


async def _decide(
    election: LeaderElection, settings: QueueSettings, stop: asyncio.Event, health: Health, now_ms: Callable[[], int]
) -> None:
    async with (
        Tail(settings.bootstrap, FETCH_WAIT_MS) as tail,
        Sender(settings.bootstrap, client_id="slacktide-queue", timeout_s=SEND_S, compress=True) as sender,
        AsyncExitStack() as stack,
    ):
        term = Term(
            settings.process,
            tail,
            sender,
            now_ms,
            fair_sharing=settings.fair_sharing,
            pods_ready=settings.pods_ready,
        )
        await term.begin(await election.done())
        metrics.DECIDES.set(1)
        stayed_ms = looked_ms = mono_ms()
        if settings.credit is not None:
            credit = await stack.enter_async_context(Tail(settings.bootstrap, FETCH_WAIT_MS))
            term.credit = settings.credit(credit, term.epoch, sender)
        selling = SellingWriter(settings.bootstrap, settings.process)
        stack.push_async_callback(selling.close)
        while election.elected and not stop.is_set():
            if not term.goes_on:
                await term.listen()
            if mono_ms() - stayed_ms > settings.session_timeout_ms // 6:
                await election.stay(term.done)
                stayed_ms = mono_ms()
                health.turned("queue")
            if mono_ms() - looked_ms > settings.session_timeout_ms:
                await tail.check()
                looked_ms = mono_ms()
            if election.leads:
                election.check()
                await term.act()
                await selling.step(term.objects, sender, now_ms())
    metrics.DECIDES.set(0)
    log.info("no longer the queue's decider", extra={"epoch": term.epoch})
