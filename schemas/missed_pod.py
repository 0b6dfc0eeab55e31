"""A pod that its profiles should have changed and did not. Topic slacktide.pod.missed.v1, key: the pod's uid."""

from __future__ import annotations

from slacktide.schemas.bounds import Name, TimeMs
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
