"""Reports pods that a kube-scheduler placed without the extender: it silently ignores one that is unavailable."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.scheduler.metrics import UNASKED
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.view import BINDING_S, View
from slacktide.agents.kubernetes import ApiError, ApiServer
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import PLACEMENT
from slacktide.streams.kafka import read_topic
from slacktide.streams.records import Record

log = logging.getLogger(__name__)

LOOK_S = 2.0
SETTLED_S = 5.0
"""From a pod's binding to reading Kafka: placements of other replicas arrive late."""
BEFORE_S = 60.0
"""Tolerated difference between the clocks of Kafka and the API server."""
SPAN_S = 600.0
"""Pods bound earlier are ignored."""
REASON = "PlacedWithoutLoad"
NOTE = "it was placed without regard to the load of nodes, because its scheduler could not reach Slacktide's extender"


class MissedPods:
    """Checks each bound pod: did this replica find its node, or does Kafka have a placement of another one?

    ``answered``: whether this replica found a node for the pod of this uid.
    """

    def __init__(
        self, bootstrap: Cluster, view: View, answered: Callable[[str], bool], clock: Clock, replica: str
    ) -> None:
        self.trouble = ""
        """Why pods cannot be checked; "": they can."""
        self._bootstrap = bootstrap
        self._view = view
        self._answered = answered
        self._clock = clock
        self._source = EventSource(part="scheduler", replica=replica, action="Schedule")
        self._bound: dict[str, tuple[SchedulerPod, float]] = {}
        """By uid, with the time of its binding."""
        self._log_away = False

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._take()
            now_s = self._clock.mono_ns() / 1e9
            due = [pod for pod, at_s in self._bound.values() if at_s <= now_s - SETTLED_S]
            try:
                if due:
                    placed = await self._placed(due)
                    if self._log_away:  # other replicas publish delayed placements now
                        self._bound = {uid: (pod, now_s) for uid, (pod, _) in self._bound.items()}
                        due = []
                    self._log_away = False
                    await self._judge(api, due, placed)
                self.trouble = ""
            except LogError as exc:
                self.trouble, self._log_away = str(exc), True
            except ApiError as exc:
                self.trouble = str(exc)

    def _take(self) -> None:
        now_s, oldest_s = self._clock.mono_ns() / 1e9, self._clock.wall_ms() / 1000 - SPAN_S
        while self._view.bound:
            pod = self._view.bound.popleft()
            if (pod.asked.scheduled_s or 0.0) > oldest_s and not self._answered(pod.uid):
                self._bound[pod.uid] = pod, now_s

    async def _placed(self, due: list[SchedulerPod]) -> set[str]:
        """Return uids of those pods for which the last placement has a node."""
        since_s = min(map(_asked_s, due)) - BEFORE_S
        uids = {pod.uid.encode(): pod.uid for pod in due}
        reading = read_topic(self._bootstrap, PLACEMENT.name, since_ms=round(since_s * 1000))
        async with aclosing(reading) as records:
            found = {uids[record.key]: _found(record) async for record in records if record.key in uids}
        return {uid for uid, one in found.items() if one}

    async def _judge(self, api: ApiServer, due: list[SchedulerPod], placed: set[str]) -> None:
        for pod in due:
            if pod.uid not in placed:
                await create_event(
                    api, self._source, About.of(pod.asked.pod), REASON, NOTE, now_ms=self._clock.wall_ms()
                )
                log.warning("a pod was scheduled without the extender", extra={"pod": "/".join(pod.key)})
                UNASKED.inc()
            del self._bound[pod.uid]


def _found(record: Record) -> bool:
    """Return whether a node accepted the pod. An invalid record at least shows that an extender was called."""
    try:
        return decode(record.value, PodPlacement).passed > 0
    except BadMessageError:
        return True


def _asked_s(pod: SchedulerPod) -> float:
    """Return the earliest time of the extender request, UTC epoch."""
    return max(pod.created_s or 0.0, (pod.asked.scheduled_s or 0.0) - BINDING_S)
