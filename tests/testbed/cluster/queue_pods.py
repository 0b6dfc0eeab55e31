"""Pods of queued objects on a real node, which run until the test lets them end."""

from pathlib import Path

from . import images
from .api_server import Json

POD_CPU = "10m"
"""What each requests."""


def template(folder: Path, ends: str) -> Json:
    """Of pods that run until there is a file of this name in a folder, which may have their exit code."""
    container = {
        "name": "main",
        "image": images.BUSYBOX,
        "command": ["sh", "-c", f"until [ -e /ends/{ends} ]; do sleep 0.2; done; exit $(cat /ends/{ends})"],
        "resources": {"requests": {"cpu": POD_CPU}},
        "volumeMounts": [{"name": "ends", "mountPath": "/ends"}],
    }
    volume = {"name": "ends", "hostPath": {"path": str(folder)}}
    pod = {"containers": [container], "volumes": [volume], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return {"spec": pod}
