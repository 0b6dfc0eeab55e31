"""Gangs at the API server: PodGroups are read, pods released and woken, and Events created."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from typing import Any

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.scheduler import metrics
from slacktide.agents.cluster.scheduler.gang_group import Now
from slacktide.agents.cluster.scheduler.gang_log import PlanReader
from slacktide.agents.cluster.scheduler.gangs import Gangs
from slacktide.agents.cluster.scheduler.notices import OTHER_POD, wake
from slacktide.agents.cluster.scheduler.pod import SchedulerPod
from slacktide.agents.cluster.watching import ignored, inform
from slacktide.agents.kubernetes.api_server import STRATEGIC_PATCH, ApiServer, follow
from slacktide.agents.kubernetes.resource import PODS, ApiError, ApiRefusedError, IgnoreStatus, Resource
from slacktide.streams.decisions.gang.membership import GATE, Kind, Options, options_of_group
from slacktide.streams.decisions.queue.kinds.manifest import Part

log = logging.getLogger(__name__)

POD_GROUPS: Mapping[Kind, Resource] = {
    "pod_group": Resource(group="scheduling.sigs.k8s.io", version="v1alpha1", plural="podgroups"),
    "x_pod_group": Resource(group="scheduling.x-k8s.io", version="v1alpha1", plural="podgroups"),
}
SERVED_S = 30.0
"""How often it is checked whether the API server serves PodGroups."""
TICK_S, LEAST_S = 0.5, 0.05
"""How often pods are looked at without and with news."""
AT_ONCE = 8
REASON = "PlacedWithoutGang"
NOTE = "it was bound before its gang had places for all, because its scheduler could not reach Slacktide's extender"


class PodGroups:
    """Follows PodGroups of one API group, once the API server serves them."""

    def __init__(self, kind: Kind, gangs: Gangs) -> None:
        self.trouble = ""
        """Why they cannot be read; "": they can, or are not served."""
        self.listed = False
        """Whether all were read once, or cannot be."""
        self._kind, self._resource, self._gangs = kind, POD_GROUPS[kind], gangs
        self._known: set[str] = set()

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        while not await self._is_served(api):
            self.listed = True
            await asyncio.sleep(SERVED_S)
        updates = follow(api, self._resource, dict[str, Any])
        await inform(updates, self._whole, self._take, lambda *key: self._forget("/".join(key)), self._troubled)

    async def _is_served(self, api: ApiServer) -> bool:
        try:
            with suppress(ApiRefusedError):
                await api.read(self._resource.group_path, dict)
                return True
        except ApiError as exc:
            self._troubled(str(exc))
        return False

    def _whole(self, items: list[dict[str, Any]]) -> None:
        listed = {gang for item in items if (gang := self._take(item))}
        for gang in self._known - listed:
            self._forget(gang)
        self.listed = True

    def _take(self, item: Mapping[str, Any]) -> str:
        """Add or update one. Return its id; "": it is invalid, which is logged."""
        try:
            gang, options = pod_group_of(item)
        except Exception as exc:  # noqa: BLE001 - whatever is in one object costs this object alone
            ignored(self._resource.plural, item, exc)
            return ""
        self._known.add(gang)
        self._gangs.take_options(self._kind, gang, options)
        return gang

    def _forget(self, gang: str) -> None:
        self._known.discard(gang)
        self._gangs.take_options(self._kind, gang, None)

    def _troubled(self, why: str) -> None:
        if why and not self.trouble:
            log.warning("cannot read PodGroups", extra={"group": self._resource.group, "why": why})
        self.trouble = why
        self.listed |= bool(why)


def pod_group_of(item: Mapping[str, Any]) -> tuple[str, Options]:
    """Return the id of a PodGroup and what it asks for. Raises CaseError."""
    part = Part(dict(item))
    metadata, spec = part["metadata"], part["spec"]
    gang = f"{metadata['namespace'].text()}/{metadata['name'].text()}"
    annotations = metadata["annotations"].texts()
    return gang, options_of_group(
        gang, spec["minMember"].value, spec["scheduleTimeoutSeconds"].value, annotations
    )  # fmt: skip


class GangWriter:
    """Releases and wakes pods, and creates Events."""

    def __init__(self, gangs: Gangs, plans: PlanReader, clock: Clock, replica: str) -> None:
        self.trouble = ""
        """Why the last write failed; "": it did not."""
        self._gangs, self._plans, self._clock = gangs, plans, clock
        self._source = EventSource(part="scheduler", replica=replica, action="Schedule")
        self._few = asyncio.Semaphore(AT_ONCE)

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._plans.news.wait()
            self._plans.news.clear()
            if self._plans.whole:
                await self._write(api)
                await asyncio.sleep(LEAST_S)

    async def _write(self, api: ApiServer) -> None:
        work, now_ms = self._gangs.tick(Now.by(self._clock)), self._clock.wall_ms()
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
                log.warning("cannot write to the pod of a gang", extra={"pod": "/".join(pod.key), "why": str(exc)})
            return str(exc)
        return ""

    async def _release(self, api: ApiServer, pod: SchedulerPod) -> None:
        namespace, name = pod.key
        gates = [{"name": GATE, "$patch": "delete"}]
        patch = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": gates}}
        with IgnoreStatus(*OTHER_POD):
            await api.patch(PODS, name, patch, dict, namespace=namespace, how=STRATEGIC_PATCH)
            metrics.RELEASED.inc()
