"""Decides whether a pod holds resources exclusively, such as whole CPUs or a device.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/resourcerequests/exclusive.go.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from slacktide.streams.decisions.numa.pod import Pod
from slacktide.streams.decisions.numa.resource import CPU, is_memory, is_native, whole_cpus


def is_exclusive(pod: Pod, listed: Collection[str]) -> bool:
    """Return whether an app container or sidecar requests exclusive resources, given what the node's zones list."""
    running = chain((one for one in pod.inits if one.sidecar), pod.containers)
    return any(_exclusive(pod, name, amount, listed) for one in running for name, amount in one.requests.items())


def _exclusive(pod: Pod, name: str, amount: int, listed: Collection[str]) -> bool:
    if not is_native(name):
        return name in listed
    return pod.guaranteed and ((name == CPU and whole_cpus(amount)) or (is_memory(name) and amount > 0))
