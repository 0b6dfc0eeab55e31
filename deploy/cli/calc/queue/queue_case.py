"""Defines types shared by the cases of the job queue: amounts, quotas, ClusterQueues and cohorts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeVar

import msgspec

from slacktide.deploy.cli.calc.case import Given, Seconds, Whole
from slacktide.schemas.errors import CaseError
from slacktide.streams.decisions.queue.queue_order import Condition, Queued
from slacktide.streams.decisions.queue.quota_tree import (
    UNLIMITED,
    FlavorResource,
    NodeSpec,
    Quota,
    QuotaTree,
    cohort_on_cycle,
    quota_tree,
)
from slacktide.streams.decisions.queue.quota_usage import QuotaUsage

QueueAmount = Annotated[int, msgspec.Meta(ge=0, le=UNLIMITED)]
QuotaAmount = QueueAmount | Literal["unlimited"]
KEYS = {"cpu": "cpu_milli", "memory": "memory_bytes"}
"""The keys of resources in cases; all others have their Kubernetes name."""
RESOURCES = {key: resource for resource, key in KEYS.items()}
WEIGHT_MAX = 1e9
T = TypeVar("T")


def resource_of(key: str, field: str) -> str:
    """Convert a case's resource key to the Kubernetes name."""
    if key in KEYS:
        raise CaseError(field, f"{key}: accepted: {KEYS[key]}, pods, or the name of another resource")
    return RESOURCES.get(key, key)


def written(of: FlavorResource) -> str:
    """Return the case's key: ``flavor/resource key``."""
    return f"{of.flavor}/{key_of(of.resource)}"


def key_of(resource: str) -> str:
    """Convert to the case's format."""
    return KEYS.get(resource, resource)


def unit_of(resource: str) -> str:
    """Return the unit of the resource's amounts."""
    return {"cpu": "milli", "memory": "bytes"}.get(resource, "count")


def amount_of(given: QuotaAmount) -> int:
    """Convert a case's quota to the rule's type."""
    return UNLIMITED if given == "unlimited" else given


def written_amount(amount: int) -> int | str:
    """Convert to the case's format."""
    return "unlimited" if amount == UNLIMITED else amount


class GivenQuota(Given, frozen=True, kw_only=True):
    """A quota; an absent limit means unlimited."""

    nominal: QuotaAmount = 0
    borrowing_limit: QuotaAmount | None = None
    lending_limit: QuotaAmount | None = None

    def quota(self) -> Quota:
        """Convert to the rule's type."""
        borrowing, lending = self.borrowing_limit, self.lending_limit
        return Quota(
            nominal=amount_of(self.nominal),
            borrowing_limit=None if borrowing is None else amount_of(borrowing),
            lending_limit=None if lending is None else amount_of(lending),
        )


class GivenCohortQuota(GivenQuota, frozen=True, kw_only=True):
    """A cohort's quota of one flavor's resource."""

    flavor: str
    resource: str


class GivenCohort(Given, frozen=True, kw_only=True):
    """A cohort."""

    name: str
    parent: str | None = None
    fair_weight: str | None = None
    quotas: list[GivenCohortQuota] | None = None

    def spec(self, field: str) -> NodeSpec:
        """Convert to the rule's type."""
        pairs = (
            (FlavorResource(one.flavor, resource_of(one.resource, f"{field}.quotas[{at}].resource")), one.quota())
            for at, one in enumerate(self.quotas or ())
        )
        weight = weight_of(self.fair_weight, f"{field}.fair_weight")
        return NodeSpec(self.name, self.parent or None, _once(pairs, f"{field}.quotas"), weight)


class GivenFlavorQuotas(Given, frozen=True, kw_only=True):
    """A flavor of a resource group."""

    name: str
    quotas: dict[str, GivenQuota] = {}


class GivenResourceGroup(Given, frozen=True, kw_only=True):
    """Resources of the same flavor; flavors in the order of preference."""

    resources: list[str] = []
    flavors: list[GivenFlavorQuotas] = []


class GivenClusterQueue(Given, frozen=True, kw_only=True):
    """A ClusterQueue."""

    name: str
    cohort: str | None = None
    fair_weight: str | None = None
    resource_groups: list[GivenResourceGroup] | None = None

    def spec(self, field: str) -> NodeSpec:
        """Convert to the rule's type."""
        quotas = [
            (FlavorResource(flavor.name, resource_of(key, f"{at}.flavors[{index}].quotas")), one.quota())
            for at, group in self.groups(field)
            for index, flavor in enumerate(group.flavors)
            for key, one in flavor.quotas.items()
        ]
        weight = weight_of(self.fair_weight, f"{field}.fair_weight")
        return NodeSpec(self.name, self.cohort or None, _once(quotas, f"{field}.resource_groups"), weight)

    def groups(self, field: str) -> list[tuple[str, GivenResourceGroup]]:
        """Return each resource group with its path."""
        return [(f"{field}.resource_groups[{at}]", group) for at, group in enumerate(self.resource_groups or ())]


class GivenCondition(Given, frozen=True, kw_only=True):
    """A condition; an absent status is True."""

    reason: str = ""
    at_seconds: Seconds = 0
    status: bool = True

    def condition(self) -> Condition:
        """Convert to the rule's type."""
        return Condition(self.reason, self.at_seconds, self.status)


class GivenWorkload(Given, frozen=True, kw_only=True):
    """A workload. Subclasses add a rule's other fields."""

    name: str
    uid: str | None = None
    priority: Whole | None = None
    created_seconds: Seconds = 0
    evicted: GivenCondition | None = None

    def queued(self) -> Queued:
        """Convert to the rule's type."""
        evicted = None if self.evicted is None else self.evicted.condition()
        uid = self.name if self.uid is None else self.uid
        return Queued(uid=uid, priority=self.priority, created_s=self.created_seconds, evicted=evicted)


class GivenUsage(Given, frozen=True, kw_only=True):
    """Usage of a pod set: totals by resource, and the flavor of each."""

    name: str = ""
    count: QueueAmount | None = None
    flavors: dict[str, str] = {}
    usage: dict[str, QueueAmount] = {}

    def flavor_resources(self, field: str) -> dict[str, FlavorResource]:
        """Return the flavor resources by key; "": no flavor."""
        keys = {**self.flavors, **self.usage}
        return {key: FlavorResource(self.flavors.get(key, ""), resource_of(key, field)) for key in keys}


class GivenAdmitted(GivenWorkload, frozen=True, kw_only=True):
    """A workload that holds quota."""

    cluster_queue: str
    pod_sets: list[GivenUsage] = []


class ClusterInput(Given, frozen=True, kw_only=True):
    """A cluster's cohorts, ClusterQueues and workloads that hold quota."""

    cohorts: list[GivenCohort] | None = None
    cluster_queues: list[GivenClusterQueue]
    admitted: list[GivenAdmitted] | None = None

    def tree(self) -> QuotaTree:
        """Convert to the rule's type."""
        cohorts = [one.spec(f"input.cohorts[{at}]") for at, one in enumerate(self.cohorts or ())]
        queues = [one.spec(f"input.cluster_queues[{at}]") for at, one in enumerate(self.cluster_queues)]
        unique((one.name for one in cohorts), "input.cohorts")
        unique((one.name for one in queues), "input.cluster_queues")
        on_cycle = cohort_on_cycle(cohorts)
        if on_cycle is not None:
            at = next(index for index, one in enumerate(cohorts) if one.name == on_cycle)
            accepted = "accepted: a parent that is not a descendant of the cohort"
            raise CaseError(f"input.cohorts[{at}].parent", f"{cohorts[at].parent}: {accepted}")
        return quota_tree(queues, cohorts)

    def usage(self, tree: QuotaTree) -> QuotaUsage:
        """Compute the usage of all workloads that hold quota."""
        usage = QuotaUsage()
        for at, one in enumerate(self.admitted or ()):
            field = f"input.admitted[{at}]"
            node = known(tree.queues, one.cluster_queue, f"{field}.cluster_queue")
            for index, pod_set in enumerate(one.pod_sets):
                of = pod_set.flavor_resources(f"{field}.pod_sets[{index}].usage")
                for key, amount in pod_set.usage.items():
                    usage.book(node, of[key], amount)
        return usage


def known(by_name: Mapping[str, T], name: str, field: str) -> T:
    """Return the value of that name."""
    if name not in by_name:
        raise CaseError(field, f"{name}: accepted: {', '.join(sorted(by_name)) or 'nothing, because none is defined'}")
    return by_name[name]


def unique(names: Iterable[str], field: str) -> None:
    """Check that names are unique."""
    seen: set[str] = set()
    for at, name in enumerate(names):
        if name in seen:
            raise CaseError(f"{field}[{at}].name", f"{name}: accepted: a unique name")
        seen.add(name)


def weight_of(text: str | None, field: str) -> float:
    """Parse a decimal number that is at least 0."""
    try:
        weight = 1.0 if text is None else float(text)
    except ValueError:
        weight = math.nan
    if not 0 <= weight <= WEIGHT_MAX:
        raise CaseError(field, f"{text}: accepted: a decimal number from 0 to {WEIGHT_MAX:.0f}, as text")
    return weight


def _once(pairs: Iterable[tuple[FlavorResource, Quota]], field: str) -> dict[FlavorResource, Quota]:
    quotas: dict[FlavorResource, Quota] = {}
    for of, quota in pairs:
        if of in quotas:
            raise CaseError(field, f"{written(of)} is given twice; accepted: one quota for each resource of a flavor")
        quotas[of] = quota
    return quotas
