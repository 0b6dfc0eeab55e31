"""Events on pods: told twice, or by two replicas, they are one."""

from __future__ import annotations

from datetime import UTC, datetime

from slacktide.agents.cluster.scheduler.pod import SeenPod
from slacktide.agents.kubernetes import EVENTS, ApiRefusedError, ApiServer

NAME_MAX = 253
FORBIDDEN, GONE, THERE = 403, 404, 409


async def tell(api: ApiServer, pod: SeenPod, reason: str, note: str, *, now_ms: int, replica: str) -> None:
    """Tell one; no error where another replica did, or where the namespace takes none any more.

    Raises:
        ApiError: it was not told.

    """
    namespace, name = pod.key
    end = f".{pod.uid}.{reason.lower()}"
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name[: NAME_MAX - len(end)] + end, "namespace": namespace},
        "eventTime": datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": "Warning",
        "reason": reason,
        "action": "Schedule",
        "note": note,
        "reportingController": "slacktide.io/scheduler",
        "reportingInstance": replica[:128],
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": pod.uid},
    }
    try:
        await api.create(EVENTS, event, dict, namespace=namespace)
    except ApiRefusedError as exc:
        if exc.status not in {FORBIDDEN, GONE, THERE}:
            raise
