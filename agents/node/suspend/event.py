"""The Event on a Node that it was suspended or resumed. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from slacktide.agents.node.evict.eviction_api import CONTROLLER, NAME_MAX, NOTE_MAX

NAMESPACE = "default"
"""Namespace of Events on cluster-scoped objects."""


def event_of(node: str, uid: str, reason: str, *, at_ms: int) -> dict[str, object]:
    """Return an Event on a Node. ``uid`` "": unknown; ``reason`` "": resumed; ``at_ms`` since the epoch."""
    end = f".slacktide-suspend-{at_ms:x}"
    when = datetime.fromtimestamp(at_ms / 1_000, UTC)
    note = f"limits are lifted and no pod is evicted: {reason}" if reason else "limits and evictions are in force again"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": node[: NAME_MAX - len(end)] + end, "namespace": NAMESPACE},
        "eventTime": when.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning" if reason else "Normal",
        "reason": "SlacktideSuspended" if reason else "SlacktideResumed",
        "action": "Suspend" if reason else "Resume",
        "note": note[:NOTE_MAX],
        "reportingController": CONTROLLER,
        "reportingInstance": node[:128],
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid or node},
    }
