"""Writes to pods of gangs and owners of reservations: releases and wakes them, and creates Events."""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.gang_group import Now
from slacktide.agents.cluster.scheduler.gangs import Gangs
from slacktide.agents.cluster.scheduler.notices import OTHER_POD, wake
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.reservations import Reservations
from slacktide.agents.kubernetes.api_server import STRATEGIC_PATCH, ApiServer
from slacktide.agents.kubernetes.resource import PODS, ApiError, IgnoreStatus
from slacktide.streams.decisions.gang.membership import GATE

log = logging.getLogger(__name__)

TICK_S, LEAST_S = 0.5, 0.05
"""How often pods are looked at without and with news."""
AT_ONCE = 8
REASON = "PlacedWithoutGang"
NOTE = "it was bound before its gang had places for all, because its scheduler could not reach Slacktide's extender"


class PodWriter:
    """Writes what gangs and reservations want, twice a second, and at once after news."""

    def __init__(
        self, gangs: Gangs, reservations: Reservations, news: asyncio.Event, clock: Clock, replica: str
    ) -> None:
        self.trouble = ""
        """Why the last write failed; "": it did not."""
        self._gangs, self._reservations, self._news, self._clock = gangs, reservations, news, clock
        self._source = EventSource(part="scheduler", replica=replica, action="Schedule")
        self._few = asyncio.Semaphore(AT_ONCE)

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled, once decisions of the past are known."""
        while True:
            await self._write(api)
            await asyncio.sleep(LEAST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._news.wait()
            self._news.clear()

    async def _write(self, api: ApiServer) -> None:
        now, now_ms = Now.by(self._clock), self._clock.wall_ms()
        work = self._gangs.tick(now)
        work.wake.extend(self._reservations.tick(now))
        alone, self._gangs.unplanned = self._gangs.unplanned, []
        writes = [
            *(self._each(pod, self._release(api, pod)) for pod in work.release),
            *(self._each(pod, wake(api, pod, now_ms)) for pod in work.wake),
            *(
                self._each(pod, create_event(api, self._source, About.of(pod.asked.pod), REASON, NOTE, now_ms=now_ms))
                for pod in alone
            ),
        ]
        troubles = await asyncio.gather(*writes)
        if writes:
            self.trouble = next(filter(None, troubles), "")

    async def _each(self, pod: SchedulerPod, write: Awaitable[None]) -> str:
        """Write, a few at a time; return why it failed."""
        try:
            async with self._few:
                await write
        except ApiError as exc:
            self._gangs.fail(pod)
            if not self.trouble:
                log.warning("cannot write to a pod", extra={"pod": "/".join(pod.key), "why": str(exc)})
            return str(exc)
        return ""

    async def _release(self, api: ApiServer, pod: SchedulerPod) -> None:
        namespace, name = pod.key
        gates = [{"name": GATE, "$patch": "delete"}]
        patch = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": gates}}
        with IgnoreStatus(*OTHER_POD):
            await api.patch(PODS, name, patch, dict, namespace=namespace, how=STRATEGIC_PATCH)
            metrics.RELEASED.inc()
