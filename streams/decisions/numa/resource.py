"""Classifies resources by name: provided by zones or by the node.

Reading: scheduler-plugins 903da7df, pkg/noderesourcetopology/numaresources.go; kubernetes v1.35.4,
pkg/apis/core/v1/helper/helpers.go.
"""

from __future__ import annotations

from collections.abc import Mapping

Amounts = Mapping[str, int]
"""Amounts by Kubernetes resource name: CPU in millicores, memory in bytes, devices by count.

A resource with amount 0 is present.
"""
CPU = "cpu"
MEMORY = "memory"
BATCH = frozenset({"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"})
ALWAYS_ON_NODE = frozenset({CPU, MEMORY, "ephemeral-storage", "pods"})
"""The node provides these even if its allocatable does not list them."""


def is_native(resource: str) -> bool:
    """Return whether Kubernetes defines the resource; all others are devices."""
    return "/" not in resource or "kubernetes.io/" in resource


def is_memory(resource: str) -> bool:
    """Return whether it is memory or hugepages of any size."""
    return resource == MEMORY or resource.startswith("hugepages-")


def is_affine(resource: str) -> bool:
    """Return whether only Guaranteed pods take the amount from one zone."""
    return resource == CPU or is_memory(resource)


def is_host_level(resource: str) -> bool:
    """Return whether the node may provide it without a zone that lists it."""
    return resource in {"ephemeral-storage", "storage"} or not is_native(resource)


def whole_cpus(cpu_milli: int) -> bool:
    """Return whether the kubelet's static CPU manager allocates exclusive CPUs for it."""
    return cpu_milli > 0 and cpu_milli % 1000 == 0
