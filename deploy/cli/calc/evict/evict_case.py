"""Defines the pods and the output format of the two eviction cases."""

from __future__ import annotations

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Cores, Given, GivenPod, GivenResources, Whole
from slacktide.streams.decisions.evict.evict_candidates import EvictPod, Order
from slacktide.streams.decisions.evict.evict_loop import Evictions, EvictTask


class GivenEvictPod(GivenPod, frozen=True, kw_only=True, rename={"eviction_features": "allowed_eviction_features"}):
    """A pod with its eviction labels and last metrics."""

    eviction_enabled: bool | None = None  # type: ignore[assignment] # once read, never null
    eviction_priority: Whole | None = None  # type: ignore[assignment]
    eviction_features: list[str] | None = None
    already_evicted: bool | None = None
    memory_used_bytes: Amount | None = None
    cpu_used_cores: Cores | None = None

    def __post_init__(self) -> None:
        """Replace null by the value without a label."""
        super().__post_init__()
        msgspec.structs.force_setattr(self, "eviction_enabled", bool(self.eviction_enabled))
        msgspec.structs.force_setattr(self, "eviction_priority", self.eviction_priority or 0)

    def evictable(self, *, used: int | None) -> EvictPod:
        """Convert to the rule's type, with the pod's use of the scarce resource."""
        return EvictPod(pod=self, used=used, already_evicted=bool(self.already_evicted))


class GivenEvictStrategy(Given, frozen=True, kw_only=True):
    """The thresholds that both cases have; an absent threshold is not set."""

    evict_enabled_priority_threshold: Whole | None = None
    allocatable_evict_priority_threshold: Whole | None = None
    free_class_enable: bool | None = None
    sub_priority_enable: bool | None = None

    def order(self) -> Order:
        """Convert to the rule's type."""
        return Order(free_first=bool(self.free_class_enable), sub_priority=bool(self.sub_priority_enable))


class GivenEvictNode(Given, frozen=True, kw_only=True):
    """A node, its pods and the enabled features."""

    enabled_features: list[str] | None = None
    node_allocatable: GivenResources | None = None
    pods: list[GivenEvictPod] | None = None


def shown(evictions: Evictions) -> Calculated:
    """Return the evictions in the format of the vectors."""
    return Calculated(
        output={
            "tasks": [_task(task) for task in evictions.tasks],
            "evicted_in_order": [victim.pod.pod.name for victim in evictions.victims],
        },
        because=evictions.because,
    )


def milli(cores: float | None) -> int | None:
    """Convert cores to millicores, rounded down."""
    return None if cores is None else int(cores * 1000)


def _task(task: EvictTask) -> dict[str, object]:
    known: dict[str, object] = {"feature": task.feature, "status": task.release.status}
    if task.release.status != "release":
        return known
    # Cases name memory in full.
    to_release = {name.replace("mem_", "memory_"): amount for name, amount in task.release.amounts.items()}
    return known | {"to_release": to_release, "candidates_in_order": [one.pod.name for one in task.candidates]}
