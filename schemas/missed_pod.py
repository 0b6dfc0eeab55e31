"""Pods that the webhook missed or refused.

MissedPod: its profiles should have changed it and did not. Topic slacktide.pod.missed.v1, key: the pod's uid.
RefusedPod: its namespace's quota refused it. Topic slacktide.pod.refused.v1, key: the namespace.
"""

from slacktide.schemas.bounds import Name, TimeMs, Total
from slacktide.schemas.message import Message


class LackedMark(Message, frozen=True, kw_only=True):
    """What a profile sets and the pod does not have."""

    profile: str
    field: str
    """Such as ``metadata.labels[koordinator.sh/qosClass]``."""
    wanted: str
    found: str | None
    """None: nothing."""


class MissedPod(Message, frozen=True, kw_only=True):
    """Created while the webhook was away, so that it was stored as it came: it runs, and holds what it asked for.

    A pod stays as it was admitted; a pod that is created again gets the profiles' values. Each replica reports it once,
    and again after a restart.
    """

    pod_uid: Name
    namespace: Name
    name: Name
    phase: str
    created_ms: TimeMs
    found_ms: TimeMs
    lacks: list[LackedMark]
    owner_kind: str = ""
    """Of its controller, such as ``Job``; "": it has none, or the record is of an older version."""


_RECREATING = frozenset({"DaemonSet", "ReplicaSet", "ReplicationController", "StatefulSet"})


def missed_advice(owner_kind: str) -> str:
    """Return what to do about such a pod, by the kind of its controller."""
    if owner_kind in _RECREATING:
        return f"delete it, so that its {owner_kind} creates it again"
    if owner_kind == "Job":
        return (
            "let it end. Its Job counts a deleted pod as a failure, and fails above its backoffLimit (with 0 at once). "
            "Delete the pod only if the Job may try again, or create the Job anew"
        )
    if owner_kind:
        return f"delete it only if its {owner_kind} creates deleted pods again; otherwise create the {owner_kind} anew"
    return "create it anew: no controller is known that creates a deleted pod again"


class RefusedPod(Message, frozen=True, kw_only=True):
    """Nothing of it is stored: its controller tries again. A controller's retry is another record."""

    namespace: Name
    name: Name
    """Where Kubernetes makes the name, its beginning with the ``-``."""
    resource: str
    """A field of ``Resources``, such as ``batch_cpu_milli``."""
    asked: Total
    """What the pod requests of it, in the unit of that field."""
    used: Total
    """What pods of the namespace requested before."""
    bound: Total
    """Of the namespace."""
    refused_ms: TimeMs
