"""Creates an Event on pods that request batch or mid resources from a scheduler without load scoring."""

from __future__ import annotations

import asyncio
import logging

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.scheduler.pod import SCHEDULER, SchedulerPod
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.kubernetes import ApiError, ApiServer

log = logging.getLogger(__name__)

LOOK_S = 2.0
REASON = "NotScheduledByLoad"


class WithoutBenefit:
    """Creates one Event per pod."""

    def __init__(self, view: View, clock: Clock, replica: str) -> None:
        self.trouble = ""
        """Why the last Event was not created; "": it was."""
        self._view = view
        self._clock = clock
        self._source = EventSource(part="scheduler", replica=replica, action="Schedule")
        self._reported: set[str] = set()

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        while True:
            known = dict(self._view.without_benefit)
            self._reported &= known.keys()
            try:
                for uid in known.keys() - self._reported:
                    await self._publish_event(api, known[uid])
                self.trouble = ""
            except ApiError as exc:
                self.trouble = str(exc)
            await asyncio.sleep(LOOK_S)

    async def _publish_event(self, api: ApiServer, pod: SchedulerPod) -> None:
        note = (
            f"it requests batch or mid resources, but its schedulerName is {pod.scheduler}, which does not "
            f"score load; set schedulerName {SCHEDULER}"
        )
        await create_event(api, self._source, About.of(pod.asked.pod), REASON, note, now_ms=self._clock.wall_ms())
        self._reported.add(pod.uid)
        log.warning(
            "a pod requests batch or mid resources from a scheduler without load scoring",
            extra={"pod": "/".join(pod.key), "scheduler": pod.scheduler},
        )
