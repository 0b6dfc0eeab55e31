"""Wakes waiting pods: writes an annotation, on which a kube-scheduler tries the pod again.

A kube-scheduler tries a pod that an extender refused again on any update of that pod, and no other pod then. The status
subresource takes annotations, and every kube-scheduler's account may patch it. So this needs no right of its own.
Reading: kubernetes v1.34, pkg/scheduler/backend/queue/scheduling_queue.go, PriorityQueue.Update.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.pod import SeenPod
from slacktide.agents.cluster.scheduler.waiting import Waiting
from slacktide.agents.kubernetes import PODS, ApiError, ApiRefusedError, ApiServer

log = logging.getLogger(__name__)

ANNOTATION = "slacktide.io/woken"
LOOK_S = 0.5
AT_ONCE = 20
"""Judgements: a kube-scheduler that asks waits meanwhile."""
SHARE = 0.05
"""Of one core. Where many nodes change each second, each is judged every few seconds."""
NOT_FOUND, CONFLICT, INVALID = 404, 409, 422
OTHER_POD = {NOT_FOUND, CONFLICT, INVALID}
"""The pod is gone, or another has its name."""


class Waker:
    """One writer.

    Args:
        waiting: which pods to wake.
        clock: the time.

    """

    def __init__(self, waiting: Waiting, clock: Clock) -> None:
        self.trouble = ""
        """Why the last pod was not woken; "" where it was."""
        self._waiting = waiting
        self._clock = clock

    async def run(self, api: ApiServer) -> None:
        """For ever."""
        while True:
            begun_s = self._now_s
            pods = self._waiting.wake(AT_ONCE, now_s=begun_s)
            pause_s = (self._now_s - begun_s) / SHARE
            await self._wake(api, pods)
            await asyncio.sleep(pause_s if self._waiting.behind else max(pause_s, LOOK_S))

    async def _wake(self, api: ApiServer, pods: list[SeenPod]) -> None:
        """One after the other; after an error the others wait, too."""
        for number, pod in enumerate(pods):
            try:
                await self._write(api, pod)
            except ApiError as exc:
                for other in pods[number:]:
                    self._waiting.fail(other.uid)
                if not self.trouble:
                    log.warning("a waiting pod was not woken", extra={"pod": "/".join(pod.key), "why": str(exc)})
                self.trouble = str(exc)
                return
            self.trouble = ""

    async def _write(self, api: ApiServer, pod: SeenPod) -> None:
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
