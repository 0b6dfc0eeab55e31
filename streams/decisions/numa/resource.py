"""What the name of a resource implies: whether zones or the node as a whole provide it.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/numaresources.go; kubernetes v1.35.4,
pkg/apis/core/v1/helper/helpers.go.
"""

from __future__ import annotations

from collections.abc import Mapping

Amounts = Mapping[str, int]
"""Amounts by the name of the resource in Kubernetes: CPU in millicores, memory in bytes, devices by count.

A resource with amount 0 is present. A resource that is absent is not.
"""
CPU = "cpu"
MEMORY = "memory"
BATCH = frozenset({"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"})
ALWAYS_ON_NODE = frozenset({CPU, MEMORY, "ephemeral-storage", "pods"})
"""The node provides these whatever its allocatable lists."""


def is_native(resource: str) -> bool:
    """Whether Kubernetes itself defines it: all others are devices."""
    return "/" not in resource or "kubernetes.io/" in resource


def is_memory(resource: str) -> bool:
    """Memory or hugepages of any size."""
    return resource == MEMORY or resource.startswith("hugepages-")


def is_affine(resource: str) -> bool:
    """Whether only a Guaranteed pod gets its amount from one zone."""
    return resource == CPU or is_memory(resource)


def is_host_level(resource: str) -> bool:
    """Whether the node may have it without any zone listing it."""
    return resource in {"ephemeral-storage", "storage"} or not is_native(resource)


def whole_cpus(cpu_milli: int) -> bool:
    """Whether the kubelet's static CPU manager gives exclusive CPUs for it."""
    return cpu_milli > 0 and cpu_milli % 1000 == 0
