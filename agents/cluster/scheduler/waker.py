"""Wakes pending pods by an annotation, since a kube-scheduler retries a pod that is updated.

A kube-scheduler retries a pod that an extender refused on any update of that pod, and no other pod. The status
subresource accepts annotations, and every kube-scheduler's account may patch it, so no further permission is needed.
Source: kubernetes v1.34, pkg/scheduler/backend/queue/scheduling_queue.go, PriorityQueue.Update.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.waiting import Waiting
from slacktide.agents.kubernetes import PODS, ApiError, ApiRefusedError, ApiServer

log = logging.getLogger(__name__)

ANNOTATION = "slacktide.io/woken"
LOOK_S = 0.5
AT_ONCE = 20
"""Judgements per step; requests wait meanwhile."""
SHARE = 0.05
"""Limit in CPU cores. If many nodes change each second, each is judged every few seconds."""
NOT_FOUND, CONFLICT, INVALID = 404, 409, 422
OTHER_POD = {NOT_FOUND, CONFLICT, INVALID}
"""The pod was deleted or recreated."""


class Waker:
    """Writes the annotations."""

    def __init__(self, waiting: Waiting, clock: Clock) -> None:
        self.trouble = ""
        """Why the last wake failed; "": it succeeded."""
        self._waiting = waiting
        self._clock = clock

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        while True:
            begun_s = self._now_s
            pods = self._waiting.wake(AT_ONCE, now_s=begun_s)
            pause_s = (self._now_s - begun_s) / SHARE
            await self._wake(api, pods)
            await asyncio.sleep(pause_s if self._waiting.behind else max(pause_s, LOOK_S))

    async def _wake(self, api: ApiServer, pods: list[SchedulerPod]) -> None:
        """Wake one pod after the other; an error delays the rest."""
        for number, pod in enumerate(pods):
            try:
                await self._write(api, pod)
            except ApiError as exc:
                for other in pods[number:]:
                    self._waiting.fail(other.uid)
                if not self.trouble:
                    log.warning(
                        "cannot make the scheduler retry a pending pod",
                        extra={"pod": "/".join(pod.key), "why": str(exc)},
                    )
                self.trouble = str(exc)
                return
            self.trouble = ""

    async def _write(self, api: ApiServer, pod: SchedulerPod) -> None:
        namespace, name = pod.key
        now = datetime.fromtimestamp(self._clock.wall_ms() / 1_000, UTC).isoformat(timespec="milliseconds")
        patch = {"metadata": {"uid": pod.uid, "annotations": {ANNOTATION: now}}}
        try:
            await api.patch(PODS, name, patch, dict, namespace=namespace, sub="status")
        except ApiRefusedError as exc:
            if exc.status not in OTHER_POD:
                raise
        else:
            metrics.WOKEN.inc()

    @property
    def _now_s(self) -> float:
        return self._clock.mono_ns() / 1e9
