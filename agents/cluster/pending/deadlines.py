"""Fails the pods of Jobs that are pending for longer than they may be. The leading bridge runs it.

The Job controller counts such a pod as failed. Kubernetes has no such deadline: activeDeadlineSeconds of a Job counts
from its start and fails it as a whole, and that of a pod counts from when a kubelet has it.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from slacktide.agents.clock import Clock, mono_s
from slacktide.agents.cluster.events import About, EventSource, create_event
from slacktide.agents.cluster.watching import ignored, inform
from slacktide.agents.kubernetes.api_server import ApiServer, follow
from slacktide.agents.kubernetes.resource import CONFLICT, NOT_FOUND, PODS, ApiError, IgnoreStatus
from slacktide.schemas.errors import TextError
from slacktide.schemas.kubernetes_pod import JOB_NAME, PENDING_DEADLINE, deadline_s_of
from slacktide.schemas.text import time_text
from slacktide.streams.tasks import until_one_ends

log = logging.getLogger(__name__)

REASON = "PendingDeadlineExceeded"
"""Of the failed pod, and the type of its condition, which rules of a podFailurePolicy may name."""
LOOK_S = 1.0
AGAIN_S = 5.0
"""After a write that failed."""
CHARS_MAX = 1_024


@dataclass(slots=True)
class Pending:
    """A pod that is pending, as the API server last showed it."""

    item: Mapping[str, Any]
    since_s: float
    """Monotonic; when it was first seen without scheduling gates."""
    deadline_s: int
    due_s: float


def deadline_of(item: Mapping[str, Any]) -> int | None:
    """Return the seconds that a pod may be pending; None: it has no deadline, is gated, or is not pending."""
    if item.get("status", {}).get("phase") != "Pending" or item["metadata"].get("deletionTimestamp"):
        return None
    text = (item["metadata"].get("annotations") or {}).get(PENDING_DEADLINE)
    if not text or item["spec"].get("schedulingGates"):
        return None
    with suppress(TextError):  # the bridge's Job events report it
        return deadline_s_of(text)
    return None


def why_pending(item: Mapping[str, Any]) -> str:
    """Return the reason of the kubelet or the scheduler; "": none."""
    status = item.get("status", {})
    for one in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in {"ContainerCreating", "PodInitializing"}:
            return f"container {one['name']}: {waiting['reason']}: {waiting.get('message', '')}".removesuffix(": ")
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return f"{one.get('reason', '')}: {one.get('message', '')}".removesuffix(": ")
    return ""


def failed_status(item: Mapping[str, Any], message: str, at: str) -> dict[str, Any]:
    """Return the merge patch of the pod's status; it applies only to this version of the pod. ``at``: in RFC 3339."""
    metadata, conditions = item["metadata"], item["status"].get("conditions") or []
    new = {"type": REASON, "status": "True", "reason": REASON, "message": message, "lastTransitionTime": at}
    kept = [one for one in conditions if one.get("type") != REASON]
    return {
        "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        "status": {"phase": "Failed", "reason": REASON, "message": message, "conditions": [*kept, new]},
    }


class PendingDeadlines:
    """All pending pods of Jobs with a deadline. ``replica``: reporter of Events."""

    def __init__(self, clock: Clock, replica: str) -> None:
        self._clock = clock
        self._events = EventSource(part="bridge", replica=replica, action="Fail")
        self._pods: dict[tuple[str, str], Pending] = {}
        self._read_why = self._write_why = ""

    @property
    def trouble(self) -> str:
        """Return why deadlines are not kept; "": they are."""
        return self._read_why or self._write_why

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled."""
        pods = follow(api, PODS, dict[str, Any], fields="status.phase=Pending", labels=JOB_NAME)
        await until_one_ends(inform(pods, self._whole, self.pod, self._gone, self._reads), self._keep(api))

    def _whole(self, items: list[dict[str, Any]]) -> None:
        there = {self.pod(item) for item in items}
        for name in self._pods.keys() - there:
            del self._pods[name]

    def pod(self, item: Mapping[str, Any]) -> tuple[str, str]:
        """Add or update a pending pod; return its namespace and name."""
        metadata = item["metadata"]
        name = metadata["namespace"], metadata["name"]
        try:
            deadline_s = deadline_of(item)
        except Exception as exc:  # noqa: BLE001 - one pod costs itself alone
            ignored("pods", item, exc)
            deadline_s = None
        known = self._pods.pop(name, None)
        if deadline_s is not None:
            now_s = mono_s(self._clock)
            same = known is not None and known.item["metadata"]["uid"] == metadata["uid"]
            since_s = known.since_s if known is not None and same else now_s
            self._pods[name] = Pending(item, since_s, deadline_s, since_s + deadline_s)
        return name

    def _gone(self, namespace: str, name: str) -> None:
        self._pods.pop((namespace, name), None)

    def _reads(self, why: str) -> None:
        self._read_why = why

    async def _keep(self, api: ApiServer) -> None:
        while True:
            await self.look(api)
            await asyncio.sleep(LOOK_S)

    async def look(self, api: ApiServer) -> None:
        """Fail the pods that are due."""
        now_s = mono_s(self._clock)
        for name, pod in list(self._pods.items()):
            if pod.due_s <= now_s and self._pods.get(name) is pod:
                await self._fail(api, name, pod)

    async def _fail(self, api: ApiServer, name: tuple[str, str], pod: Pending) -> None:
        pod.due_s = mono_s(self._clock) + AGAIN_S
        message = f"pending for {pod.deadline_s} s, which is its deadline"
        if why := why_pending(pod.item):
            message = f"{message}; {why}"[:CHARS_MAX]
        now_ms = self._clock.wall_ms()
        about = About(namespace=name[0], name=name[1], uid=pod.item["metadata"]["uid"])
        try:
            with IgnoreStatus(NOT_FOUND, CONFLICT):  # it has changed: its next version is looked at
                body = failed_status(pod.item, message, time_text(now_ms))
                await api.patch(PODS, name[1], body, dict, namespace=name[0], sub="status")
                log.info("failed a pod that was pending", extra={"pod": "/".join(name), "why": message})
                await create_event(api, self._events, about, REASON, message, now_ms=now_ms)
            self._write_why = ""
        except ApiError as exc:
            if not self._write_why:
                log.warning("cannot fail a pending pod", extra={"pod": "/".join(name), "why": str(exc)})
            self._write_why = str(exc)
