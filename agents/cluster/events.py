"""Creates Kubernetes Events. Duplicates, also from other replicas, share a name and become one Event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from slacktide.agents.event import CLUSTER, event_body
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import CONFLICT, EVENTS, FORBIDDEN, NOT_FOUND, IgnoreStatus
from slacktide.schemas.inventory import Pod


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
