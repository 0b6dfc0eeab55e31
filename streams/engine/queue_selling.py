"""Writes batch allocatable by flavor into the queue's specs, for quotas that are a share of it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.queue import spec_key, spec_of
from slacktide.schemas.queue_objects import QueueObject, SoldObject
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY, QUEUE_SPEC
from slacktide.streams.decisions.queue.cluster_objects import sold_flavors
from slacktide.streams.engine.leader_election import mono_ms
from slacktide.streams.kafka import WHOLE, Sender, Tail, present
from slacktide.streams.queue.selling import Selling
from slacktide.streams.records import Out, of_queue

log = logging.getLogger(__name__)

LOOK_MS = 5_000
FETCH_WAIT_MS = 20


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
        self._tail = await Tail(self._bootstrap, FETCH_WAIT_MS).__aenter__()
        places = {(name, number): WHOLE for name, count in counts.items() for number in range(count)}
        self._selling.receive((await self._tail.read(places)).records)

    def _out(self, one: SoldObject, now_ms: int) -> Out:
        key, spec = spec_key(one), spec_of(one)
        value = None if spec is None else encode(spec)
        return of_queue(QUEUE_SPEC.name, key, value, source=f"queue/{self._process}", event_ms=now_ms)
