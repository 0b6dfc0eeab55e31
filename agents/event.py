"""PURE: the body of a Kubernetes Event.

It is of version ``v1``: only this version may set ``lastTimestamp``, by which users sort Events.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import quote

NAME_MAX, NOTE_MAX, INSTANCE_MAX = 253, 1_024, 128

CLUSTER = "default"
"""Namespace of Events on cluster-scoped objects."""


def event_path(namespace: str) -> str:
    """Return the path of the Events of this namespace. Its name is escaped, since a pod list may contain anything."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/events"


def event_body(
    about: Mapping[str, str],
    *,
    end: str,
    by: tuple[str, str],
    reason: str,
    action: str,
    note: str,
    at_ms: int,
    warning: bool = True,
) -> dict[str, object]:
    """Return the body.

    Args:
        about: the object, as an ObjectReference. Without a namespace, the Event is in ``default``.
        end: the end of its name: Events of one end are one Event, so that a repeated request creates no second one.
        by: the controller, such as ``slacktide.io/agent``, and its instance.
        reason: in one word.
        action: what was done or failed.
        note: the text; the rest above the maximum, which is of bytes, is cut off.
        at_ms: UTC epoch time.
        warning: whether it is a warning.
    """
    when, (controller, instance) = datetime.fromtimestamp(at_ms / 1_000, UTC), by
    second = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": about["name"][: NAME_MAX - len(end)].rstrip("-.") + end,
            "namespace": about.get("namespace", CLUSTER),
        },
        "eventTime": when.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "firstTimestamp": second,
        "lastTimestamp": second,
        "count": 1,
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "action": action,
        "message": note.encode(errors="replace")[:NOTE_MAX].decode(errors="ignore"),
        "source": {"component": controller},
        "reportingComponent": controller,
        "reportingInstance": instance[:INSTANCE_MAX],
        "involvedObject": dict(about),
    }
