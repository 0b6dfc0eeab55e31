"""Creates Kubernetes Events. Duplicates, also from other replicas, share a name and become one Event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFLICT, EVENTS, FORBIDDEN, NOT_FOUND, IgnoreStatus
from slacktide.schemas.inventory import Pod

NAME_MAX, NOTE_MAX = 253, 1_024


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

    There is one Event per reason and ``once``.

    Raises:
        ApiError: the Event was not created.
    """
    end = f".{pod.uid}.{reason.lower()}" + (f".{once}" if once else "")
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": pod.name[: NAME_MAX - len(end)].rstrip("-.") + end, "namespace": pod.namespace},
        "eventTime": datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "action": source.action,
        "note": note[:NOTE_MAX],
        "reportingController": f"slacktide.io/{source.part}",
        "reportingInstance": source.replica[:128],
        "regarding": {
            "apiVersion": pod.api_version,
            "kind": pod.kind,
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
    }
    with IgnoreStatus(FORBIDDEN, NOT_FOUND, CONFLICT):
        await api.create(EVENTS, event, dict, namespace=pod.namespace)
