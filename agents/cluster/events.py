"""Creates Kubernetes Events. Duplicates, also from other replicas, share a name and become one Event."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from slacktide.agents.event import CLUSTER, event_body
from slacktide.agents.ignored import REASON, Ignored, once_of
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFLICT, EVENTS, FORBIDDEN, NOT_FOUND, ApiError, IgnoreStatus
from slacktide.schemas.inventory import Pod

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource:
    """The reporter of Events."""

    part: str
    """The component, such as ``scheduler``."""
    replica: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The involved object."""

    namespace: str
    name: str
    uid: str
    kind: str = "Pod"
    api_version: str = "v1"

    @classmethod
    def of(cls, pod: Pod) -> Self:
        """Return a pod."""
        return cls(namespace=pod.namespace, name=pod.name, uid=pod.uid)


async def create_event(
    api: ApiServer,
    source: EventSource,
    pod: About,
    reason: str,
    note: str,
    *,
    now_ms: int,
    once: str = "",
    warning: bool = True,
) -> None:
    """Create an Event. It is no error if it exists, or if the namespace is terminating.

    There is one Event per reason and ``once``. One about an object without a namespace is in ``default``.

    Raises:
        ApiError: the Event was not created.
    """
    event = event_body(
        {
            "apiVersion": pod.api_version,
            "kind": pod.kind,
            **({"namespace": pod.namespace} if pod.namespace else {}),
            "name": pod.name,
            "uid": pod.uid,
        },
        end=f".{pod.uid}.{reason.lower()}" + (f".{once}" if once else ""),
        by=(f"slacktide.io/{source.part}", source.replica),
        reason=reason,
        action=source.action,
        note=note,
        at_ms=now_ms,
        warning=warning,
    )
    with IgnoreStatus(FORBIDDEN, NOT_FOUND, CONFLICT):
        await api.create(EVENTS, event, dict, namespace=pod.namespace or CLUSTER)


LOOK_S, PAUSE_S, RETRY_S = 1.0, 0.1, 5.0
EVENTS_MAX = 1_000
"""Of the fields beyond, the oldest get no Event."""
NEVER = (400, 422)
"""The API server rejects this Event, now and later."""
_KINDS = {"Pod": ("pods", "v1"), "Node": ("nodes", "v1"), "Job": ("jobs", "batch/v1")}


class IgnoredFields:
    """The ignored fields that one replica reads. ``part``: the component, such as ``bridge``."""

    def __init__(self, part: str, replica: str, now_ms: Callable[[], int]) -> None:
        self.trouble = ""
        """Why the last Event was not created; "": it was."""
        self._source = EventSource(part=part, replica=replica, action="Read")
        self._now_ms = now_ms
        self._known = {kind: Ignored(plural) for kind, (plural, _) in _KINDS.items()}
        self._due: deque[tuple[About, str]] = deque(maxlen=EVENTS_MAX)

    def take(self, kind: str, metadata: Mapping[str, Any], notes: Sequence[str]) -> None:
        """Record all ignored fields of an object."""
        name, namespace, uid = (str(metadata.get(field) or "") for field in ("name", "namespace", "uid"))
        for note in self._known[kind].new(uid or f"{namespace}/{name}", notes):
            log.warning(
                "ignored a field", extra={"kind": kind, "object": f"{namespace}/{name}".lstrip("/"), "why": note}
            )
            about = About(namespace=namespace, name=name, uid=uid, kind=kind, api_version=_KINDS[kind][1])
            self._due.append((about, note))

    async def run(self, api: ApiServer) -> None:
        """Create the Events until cancelled."""
        while True:
            try:
                while self._due:
                    about, note = self._due[0]
                    now_ms = self._now_ms()
                    with IgnoreStatus(*NEVER):
                        await create_event(api, self._source, about, REASON, note, now_ms=now_ms, once=once_of(note))
                    if self._due and self._due[0] == (about, note):
                        self._due.popleft()
                    await asyncio.sleep(PAUSE_S)
                self.trouble = ""
                await asyncio.sleep(LOOK_S)
            except ApiError as exc:
                self.trouble = str(exc)
                await asyncio.sleep(RETRY_S)
