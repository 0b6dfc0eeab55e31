"""Exclusive CPUs of the kubelet's static policy, which best-effort pods and sums exclude.

Slacktide's own. The reference reads CPUs of LSE pods from an annotation of its scheduler. It leaves those of the static
policy to the kubelet, which moves running containers off them only every 10 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.streams.decisions.known_pods import known


class Apart(NamedTuple):
    """Capacity and usage of exclusive CPUs."""

    milli: int
    used_milli: int


NOTHING = Apart(0, 0)


def exclusive_cpus(pods: Sequence[Pod]) -> frozenset[int]:
    """Return all exclusive CPUs."""
    return frozenset(cpu for pod in known(pods).exclusive.values() for cpu in pod.kind.exclusive_cpus)


def apart(sample: NodeSample, pods: Sequence[Pod]) -> Apart:
    """Compute what to subtract from the node's capacity and usage.

    Containers without exclusive CPUs use at most the pod's request beyond its exclusive CPUs.
    """
    owners = known(pods).exclusive
    if not owners:
        return NOTHING
    used_milli = 0
    for use in sample.pod_use:
        owner = owners.get(use.uid)
        if owner is not None:
            shared_milli = max(0, owner.kind.cpu_milli - 1000 * len(owner.kind.exclusive_cpus))
            used_milli += max(0, (use.cpu_milli or 0) - shared_milli)
    return Apart(1000 * len(exclusive_cpus(pods)), used_milli)


def off_exclusive(limits: Limits, facts: NodeFacts, pods: Sequence[Pod]) -> Limits:
    """Remove exclusive CPUs from the limits; if none is left, use all other CPUs. Unchanged, it is the same object."""
    if limits.be_cpuset is None:
        return limits
    taken = exclusive_cpus(pods)
    if taken.isdisjoint(limits.be_cpuset):
        return limits
    left = [cpu for cpu in limits.be_cpuset if cpu not in taken]
    left = left or sorted(one.cpu for one in facts.processors if one.cpu not in taken)
    return msgspec.structs.replace(limits, be_cpuset=left) if left else limits
