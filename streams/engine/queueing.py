"""The queue's decider on aiokafka. Leader election picks one process; all others stand by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from slacktide.schemas.access import QUEUE_GROUP
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.health import Health
from slacktide.schemas.queue import PodsReadySettings, spec_key, spec_of
from slacktide.schemas.queue_objects import QueueObject, SoldObject
from slacktide.schemas.topics import ALLOCATABLE, DEAD_LETTER, INVENTORY, QUEUE_DECISION, QUEUE_SPEC
from slacktide.streams.decisions.queue.cluster_objects import sold_flavors
from slacktide.streams.engine import queue_metrics as metrics
from slacktide.streams.engine.leader_election import LeaderElection, campaign, mono_ms
from slacktide.streams.engine.queue_term import TOPICS, Credit, Term
from slacktide.streams.kafka import WHOLE, Sender, Tail, present
from slacktide.streams.queue.selling import Selling
from slacktide.streams.records import Out, of_queue

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


LOOK_MS = 5_000
SELLING_WAIT_MS = 20


class SellingWriter:
    """Belongs to one term of the decider. It reads nodes only while some quota is a share."""

    def __init__(self, bootstrap: Cluster, process: str) -> None:
        self._bootstrap, self._process = bootstrap, process
        self._tail: Tail | None = None
        self._selling = Selling()
        self._looked_ms: int | None = None

    async def step(self, objects: Iterable[QueueObject], sender: Sender, now_ms: int) -> None:
        """Update the figures if due. While nodes cannot be read, quotas stay unchanged."""
        if self._looked_ms is not None and mono_ms() - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = mono_ms()
        objects = list(objects)
        if not sold_flavors(objects):
            return
        try:
            await self._read()
        except LogError as exc:
            log.warning("quotas cannot follow the nodes' batch resources", extra={"why": str(exc)})
            await self.close()
            return
        outs = [self._out(one, now_ms) for one in self._selling.due(objects, now_ms)]
        if outs:
            await sender.send_each(outs)

    async def close(self) -> None:
        """Stop reading."""
        tail, self._tail = self._tail, None
        if tail is not None:
            await tail.__aexit__(None, None, None)

    async def _read(self) -> None:
        if self._tail is not None:
            self._selling.receive(await self._tail.more())
            return
        counts = await present(self._bootstrap, [INVENTORY.name, ALLOCATABLE.name])
        self._tail = await Tail(self._bootstrap, SELLING_WAIT_MS).__aenter__()
        places = {(name, number): WHOLE for name, count in counts.items() for number in range(count)}
        self._selling.receive((await self._tail.read(places)).records)

    def _out(self, one: SoldObject, now_ms: int) -> Out:
        key, spec = spec_key(one), spec_of(one)
        value = None if spec is None else encode(spec)
        return of_queue(QUEUE_SPEC.name, key, value, source=f"queue/{self._process}", event_ms=now_ms)
