"""Pods as Kubernetes has them, as the scheduler reads them."""

from typing import Any

import msgspec

from slacktide.agents.cluster.scheduler import pod
from slacktide.agents.kubernetes.objects import Pod


def parsed(item: dict[str, Any]) -> pod.SchedulerPod:
    return pod.parsed(msgspec.convert(item, Pod))
