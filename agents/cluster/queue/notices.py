"""Writes Events on queued objects: why one waits, is admitted or is stopped. At most five a second."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.kubernetes import ApiError, ApiServer
from slacktide.schemas.queue import QueueState
from slacktide.streams.decisions.queue.reasons import meaning

log = logging.getLogger(__name__)

WAITING_MAX = 1_000
"""Further Events are dropped; Kafka has all states."""
PAUSE_S = 0.2


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
            await asyncio.sleep(PAUSE_S)
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
