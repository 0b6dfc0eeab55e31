"""Says by name which pods ask for batch or mid resources of a scheduler that knows no load: an Event on each."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler.pod import SCHEDULER, SeenPod
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.kubernetes import EVENTS, ApiError, ApiRefusedError, ApiServer

log = logging.getLogger(__name__)

LOOK_S = 2.0
NAME_MAX = 253
THERE, GONE, FORBIDDEN = 409, 404, 403


class Teller:
    """Tells each pod once; of several replicas the first, for they name the Event alike."""

    def __init__(self, view: View, clock: Clock, replica: str) -> None:
        self.trouble = ""
        """Why the last Event was not told; "" where it was."""
        self._view = view
        self._clock = clock
        self._replica = replica
        self._told: set[str] = set()

    async def run(self, api: ApiServer) -> None:
        """For ever."""
        while True:
            known = dict(self._view.without_benefit)
            self._told &= known.keys()
            for uid in known.keys() - self._told:
                await self._tell(api, known[uid])
            await asyncio.sleep(LOOK_S)

    async def _tell(self, api: ApiServer, pod: SeenPod) -> None:
        namespace, name = pod.key
        event = _event(pod, self._clock.wall_ms(), self._replica)
        try:
            await api.create(EVENTS, event, dict, namespace=namespace)
        except ApiError as exc:
            if not isinstance(exc, ApiRefusedError) or exc.status not in {THERE, GONE, FORBIDDEN}:
                self.trouble = str(exc)
                return
            # Another replica told it, or its namespace takes none any more.
        self.trouble = ""
        self._told.add(pod.uid)
        log.warning(
            "a pod asks for batch or mid resources of a scheduler that knows no load",
            extra={"pod": f"{namespace}/{name}", "scheduler": pod.scheduler},
        )


def _event(pod: SeenPod, now_ms: int, replica: str) -> dict[str, object]:
    namespace, name = pod.key
    end = f".{pod.uid}"
    when = datetime.fromtimestamp(now_ms / 1_000, UTC)
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name[: NAME_MAX - len(end)] + end, "namespace": namespace},
        "eventTime": when.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning",
        "reason": "NotScheduledByLoad",
        "action": "Schedule",
        "note": f"it asks for batch or mid resources, and its schedulerName is {pod.scheduler}, not {SCHEDULER}: "
        "that one does not know the load of nodes",
        "reportingController": "slacktide.io/scheduler",
        "reportingInstance": replica[:128],
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": pod.uid},
    }
