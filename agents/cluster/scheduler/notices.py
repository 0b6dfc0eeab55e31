"""Writes to pods at the API server: Events on pods that were placed without their load, and wakes of pending pods.

A kube-scheduler silently ignores an extender that is unavailable. It retries a pod that an extender refused on any
update of that pod, so an annotation wakes it. The status subresource accepts annotations, and every kube-scheduler's
account may patch it, so no further permission is needed.
Source: kubernetes v1.34, pkg/scheduler/backend/queue/scheduling_queue.go, PriorityQueue.Update.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.metrics import UNASKED
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.scheduler.view import BINDING_S, View
from slacktide.agents.cluster.scheduler.waiting import Waiting
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import PODS, ApiError, IgnoreStatus
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import PLACEMENT
from slacktide.streams.decisions.gang.membership import SCHEDULER
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
        self._bootstrap, self._view, self._answered, self._clock = bootstrap, view, answered, clock
        self._source = EventSource(part="scheduler", replica=replica, action="Schedule")
        self._bound: dict[str, tuple[SchedulerPod, float]] = {}
        """By uid, with the time of its binding."""
        self._log_away = False

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._take()
            now_s = mono_s(self._clock)
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
        now_s, oldest_s = mono_s(self._clock), self._clock.wall_ms() / 1000 - SPAN_S
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


BENEFIT_LOOK_S = 2.0
BENEFIT_REASON = "NotScheduledByLoad"


class WithoutBenefit:
    """Creates one Event per pod."""

    def __init__(self, view: View, clock: Clock, replica: str) -> None:
        self.trouble = ""
        """Why the last Event was not created; "": it was."""
        self._view, self._clock = view, clock
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
            await asyncio.sleep(BENEFIT_LOOK_S)

    async def _publish_event(self, api: ApiServer, pod: SchedulerPod) -> None:
        note = (
            f"it requests batch or mid resources, but its schedulerName is {pod.scheduler}, which does not "
            f"score load; set schedulerName {SCHEDULER}"
        )
        await create_event(
            api, self._source, About.of(pod.asked.pod), BENEFIT_REASON, note, now_ms=self._clock.wall_ms()
        )
        self._reported.add(pod.uid)
        log.warning(
            "a pod requests batch or mid resources from a scheduler without load scoring",
            extra={"pod": "/".join(pod.key), "scheduler": pod.scheduler},
        )


ANNOTATION = "slacktide.io/woken"
WAKE_LOOK_S = 0.5
WAKE_AT_ONCE = 20
"""Judgements per step; requests wait meanwhile."""
SHARE = 0.05
"""Limit in CPU cores. If many nodes change each second, each is judged every few seconds."""
OTHER_POD = (404, 409, 422)
"""The pod was deleted or recreated."""


async def wake(api: ApiServer, pod: SchedulerPod, now_ms: int) -> None:
    """Make a kube-scheduler try a pod again, unless it is gone. Raises ApiError."""
    namespace, name = pod.key
    now = datetime.fromtimestamp(now_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    patch = {"metadata": {"uid": pod.uid, "annotations": {ANNOTATION: now}}}
    with IgnoreStatus(*OTHER_POD):
        await api.patch(PODS, name, patch, dict, namespace=namespace, sub="status")
        metrics.WOKEN.inc()


class Waker:
    """Writes the annotations."""

    def __init__(self, waiting: Waiting, clock: Clock) -> None:
        self._waiting, self._clock = waiting, clock
        self._failed = "", ""
        """Uid of the pod whose wake failed last, and why; empty after a success."""

    @property
    def trouble(self) -> str:
        """Return why the last wake failed; "" if it succeeded, or its pod no longer waits."""
        uid, why = self._failed
        return why if uid in self._waiting else ""

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        while True:
            begun_s = mono_s(self._clock)
            pods = self._waiting.wake(WAKE_AT_ONCE, now_s=begun_s)
            pause_s = (mono_s(self._clock) - begun_s) / SHARE
            await self._wake(api, pods)
            await asyncio.sleep(pause_s if self._waiting.behind else max(pause_s, WAKE_LOOK_S))

    async def _wake(self, api: ApiServer, pods: list[SchedulerPod]) -> None:
        """Wake one pod after the other; an error delays the rest."""
        for number, pod in enumerate(pods):
            try:
                await wake(api, pod, self._clock.wall_ms())
            except ApiError as exc:
                for other in pods[number:]:
                    self._waiting.fail(other.uid)
                if not self.trouble:
                    log.warning(
                        "cannot make the scheduler retry a pending pod",
                        extra={"pod": "/".join(pod.key), "why": str(exc)},
                    )
                self._failed = pod.uid, str(exc)
                return
            self._failed = "", ""
