"""Writes what users see of the queue where Slacktide admits: the status of queues, and Events on queued objects.

Each status is written at most once in two seconds. At most five Events are written in a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.queue import metrics
from slacktide.agents.cluster.queue.actuator import Actuator
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.cluster.queue.status import Json, Queue, statuses
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import ApiError, ApiRefusedError, Resource
from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue import QueueState
from slacktide.schemas.queue_objects import SoldObject
from slacktide.streams.decisions.queue.missing import meaning

log = logging.getLogger(__name__)

PAUSE_S = 2.0
SHARE = 0.05
"""Maximum share of a core: with 50,000 workloads a pass takes a quarter of a second."""


class Statuses:
    """Writes statuses during one leader term."""

    def __init__(
        self, source: Source, actuator: Actuator, sold: Callable[[], Iterable[SoldObject]], clock: Clock
    ) -> None:
        self._source, self._actuator, self._sold, self._clock = source, actuator, sold, clock
        self._seen: tuple[int, int] | None = None

    async def run(self, api: ApiServer, served: Callable[[], Mapping[str, Resource]]) -> None:
        """Write statuses until cancelled, of the kinds that ``served`` returns; none while nothing may be written."""
        took_s = 0.0
        while True:
            await asyncio.sleep(max(PAUSE_S, took_s / SHARE))
            kinds, seen = served(), (self._source.changes, self._actuator.changes)
            if not kinds or seen == self._seen:
                continue
            begun_ns = self._clock.mono_ns()
            try:
                due = self._due()
                took_s = (self._clock.mono_ns() - begun_ns) / 1e9
                for queue, status in due:
                    await self._write(api, kinds[queue.kind], queue, status)
                self._seen = seen
            except CaseError as exc:
                self._seen = seen
                log.warning("the status of queues is not written", extra={"why": str(exc)})
            except ApiError as exc:
                log.info("cannot write the status of queues", extra={"why": str(exc)})

    def _due(self) -> list[tuple[Queue, Json]]:
        source = self._source
        works = {uid: work for uid, (_, work) in source.works.items()}
        objects = [*source.objects, *self._sold()]
        made = statuses(objects, works, self._actuator.states, source.stands, self._clock.wall_ms())
        return [(one, status) for one, status in made.items() if not status.items() <= self._stands(one).items()]

    def _stands(self, one: Queue) -> Json:
        return self._source.stands.get(one, {})

    async def _write(self, api: ApiServer, kind: Resource, queue: Queue, status: Json) -> None:
        result = "done"
        try:
            await api.patch(kind, queue.name, {"status": status}, dict, namespace=queue.namespace, sub="status")
            self._source.stands[queue] = {**self._stands(queue), **status}
        except ApiRefusedError as exc:
            result = "refused"
            log.info("the API server rejected the status of a queue", extra={"queue": queue, "why": str(exc)})
        except ApiError:
            result = "away"
            raise
        finally:
            metrics.WRITES.labels("status", result).inc()


WAITING_MAX = 1_000
"""Further Events are dropped; Kafka has all states."""
NOTICE_PAUSE_S = 0.2


class Notice(NamedTuple):
    """An Event to write."""

    reason: str
    note: str
    once: str
    """Part of the Event's name, so that each Event is written once."""


def notice_of(state: QueueState) -> Notice | None:
    """Return the Event for a state; None if there is none."""
    booking, turn = state.booking, f"{state.epoch}-{state.turn}"
    if state.phase == "pending" and state.reason:
        return Notice("Waiting", f"{state.reason}: {meaning(state.reason).why}", state.reason.lower())
    if state.phase == "reserved" and booking is not None and not state.started:
        flavors = [
            f"{resource} of {flavor}" for one in booking.pod_sets for resource, flavor in sorted(one.flavors.items())
        ]
        note = f"admitted by ClusterQueue {booking.cluster_queue}: {', '.join(dict.fromkeys(flavors))}"
        return Notice("Admitted", note, turn)
    if state.phase == "evicting":
        of = f" for the workload {state.preemptor}" if state.preemptor else ""
        return Notice("Evicted", f"{state.reason}{of}: {meaning(state.reason).why}", turn)
    return None


class Notices:
    """Writes Events during one leader term."""

    def __init__(self, source: Source, clock: Clock) -> None:
        self._source, self._clock = source, clock
        self._waiting: dict[tuple[str, str], Notice] = {}

    def put(self, state: QueueState) -> None:
        """Queue the Event of a new state."""
        notice = notice_of(state)
        if notice is not None and len(self._waiting) < WAITING_MAX:
            self._waiting[state.uid, notice.reason] = notice

    async def run(self, api: ApiServer, *, replica: str) -> None:
        """Write Events until cancelled."""
        by = EventSource(part="queue", replica=replica, action="Queue")
        while True:
            await asyncio.sleep(NOTICE_PAUSE_S)
            if not self._waiting:
                continue
            (uid, _), notice = next(iter(self._waiting.items()))
            del self._waiting[uid, notice.reason]
            if uid not in self._source.works:
                continue
            kind, work = self._source.works[uid]
            one = work.metadata
            about = About(namespace=one.namespace, name=one.name, uid=uid, kind=kind.name,
                          api_version=kind.resource.api_version)  # fmt: skip
            try:
                await create_event(api, by, about, notice.reason, notice.note, now_ms=self._clock.wall_ms(),
                                   once=notice.once, warning=False)  # fmt: skip
            except ApiError as exc:
                log.info("an Event could not be created", extra={"why": str(exc)})
