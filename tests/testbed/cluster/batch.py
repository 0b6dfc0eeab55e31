"""Best-effort pods and Jobs as a user of batch resources writes them by hand, and the operator's policy."""

import json
from collections.abc import Mapping
from typing import Any

from testbed.policies import config_map

from . import images
from .api_server import ApiServer, Json

LABELS = {"koordinator.sh/qosClass": "BE"}
FORGIVES = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
"""A podFailurePolicy for which an eviction is no failure."""


def pod_spec(
    *command: str, cpu_milli: int = 100, mem_mib: int = 128, image: str = images.BURN, tier: str = "batch"
) -> Json:
    """The spec of a pod of one container that asks for the resources of a class."""
    wanted = {f"kubernetes.io/{tier}-cpu": str(cpu_milli), f"kubernetes.io/{tier}-memory": f"{mem_mib}Mi"}
    container = {"name": "main", "image": image, "command": list(command)}
    return {
        "priorityClassName": f"koord-{tier}",
        "schedulerName": "koord-scheduler",
        "terminationGracePeriodSeconds": 1,
        "containers": [{**container, "resources": {"requests": wanted, "limits": wanted}}],
    }


def pod(api: ApiServer, namespace: str, name: str, *command: str, **sizes: Any) -> None:
    labels = {"koordinator.sh/qosClass": "LS"} if sizes.get("tier") == "mid" else LABELS
    metadata = {"name": name, "labels": labels}
    api.post(f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": pod_spec(*command, **sizes)})


def job(api: ApiServer, namespace: str, name: str, spec: Json, **parts: Any) -> None:
    """Make a Job of one such pod that may not fail even once."""
    template = {"metadata": {"labels": LABELS}, "spec": {**spec, "restartPolicy": "Never"}}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    api.post(path, {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template, **parts}})


def set_policy(
    api: ApiServer, *, colocation: bool = True, classes: Mapping[str, Any] | None = None, **threshold: Any
) -> None:
    """Write the operator's ConfigMap: a node sells all that it has, and thresholds as given."""
    room = {"enable": colocation, "cpuReclaimThresholdPercent": 600, "memoryReclaimThresholdPercent": 200}
    threshold = {"clusterStrategy": {"enable": True, **threshold}}
    config = config_map(colocation=room | (classes or {}), threshold=threshold)
    api.apply(json.dumps(config), "koordinator-system")
