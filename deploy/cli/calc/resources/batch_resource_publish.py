"""``slacktide calc batch_resource_publish``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Given, GivenResources
from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.resources.batch_resource_publish import Allocation, batch_resource_publish


class GivenAllocation(Given, frozen=True, kw_only=True):
    """Allocations by another scheduler."""

    name: str = ""
    priority_class: str = ""
    resources: GivenResources | None = None


class Input(Given, frozen=True, kw_only=True):
    """Computed resources (null: degraded), the normalization ratio as text, other schedulers' allocations."""

    calculated: GivenResources | None
    cpu_normalization_ratio: str | None = None
    third_party_allocations: list[GivenAllocation] | None = None


def calculate(given: Input) -> Calculated:
    """Compute the batch resources to write to the node."""
    published = batch_resource_publish(
        given.calculated,
        given.cpu_normalization_ratio,
        [
            Allocation(priority_class=one.priority_class, resources=one.resources or Resources())
            for one in given.third_party_allocations or ()
        ],
    )
    return Calculated(
        output={"node_allocatable": _written(published.allocatable), "origin_annotation": _written(published.origin)},
        because=published.because,
    )


def _written(resources: Resources | None) -> dict[str, int | None]:
    if resources is None:
        return {}
    return {"batch_cpu_milli": resources.batch_cpu_milli, "batch_memory_bytes": resources.batch_mem_bytes}
