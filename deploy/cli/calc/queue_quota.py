"""Cases of the rules of quota, and the types that all cases of the job queue share."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, kubernetes_names, unique
from slacktide.deploy.cli.calc.forms import By, Flat, Form, Given, Nullable, Seconds, Whole
from slacktide.schemas.errors import CaseError
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.queue_order import Condition, Queued
from slacktide.streams.decisions.queue.quota_tree import (
    UNLIMITED,
    FlavorResource,
    NodeSpec,
    Quota,
    QuotaNode,
    QuotaTree,
    QuotaUsage,
    cohort_on_cycle,
    node_share,
    potential_available,
    quota_tree,
)
from slacktide.streams.decisions.queue.workload_objects import AdmittedPodSet, admitted_usage, pod_set_usage

QueueAmount = Annotated[int, msgspec.Meta(ge=0, le=UNLIMITED)]
RESOURCES = kubernetes_names()
"""The Kubernetes names of resources by their keys in cases; all others have their Kubernetes name."""
KEYS = {resource: key for key, resource in RESOURCES.items()}
WEIGHT_MAX = 1e9
T = TypeVar("T")


def resource_of(key: str, field: str) -> str:
    """Convert a case's resource key to the Kubernetes name."""
    if key in KEYS:
        raise CaseError(field, f"{key}: accepted: {KEYS[key]}, pods, or the name of another resource")
    return RESOURCES.get(key, key)


def by_resource(given: Mapping[str, T], field: str) -> dict[str, T]:
    """Return the values by the Kubernetes names of their resources."""
    return {resource_of(key, field): value for key, value in given.items()}


def written(of: FlavorResource) -> str:
    """Return the case's key: ``flavor/resource key``."""
    return f"{of.flavor}/{key_of(of.resource)}"


def key_of(resource: str) -> str:
    """Convert to the case's format."""
    return KEYS.get(resource, resource)


def unit_of(resource: str) -> str:
    """Return the unit of the resource's amounts."""
    return {"cpu": "milli", "memory": "bytes"}.get(resource, "count")


def written_amount(amount: int) -> int | str:
    """Convert to the case's format."""
    return "unlimited" if amount == UNLIMITED else amount


def known(by_name: Mapping[str, T], name: str, field: str) -> T:
    """Return the value of that name."""
    if name not in by_name:
        raise CaseError(field, f"{name}: accepted: {', '.join(sorted(by_name)) or 'nothing, because none is defined'}")
    return by_name[name]


def _weight(text: str, field: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 <= weight <= WEIGHT_MAX:
        raise CaseError(field, f"{text}: accepted: a decimal number from 0 to {WEIGHT_MAX:.0f}, as text")
    return weight


GivenResource = Annotated[str, By(resource_of, str)]
QuotaAmount = Annotated[
    int, By(lambda amount, _: UNLIMITED if amount == "unlimited" else amount, QueueAmount | Literal["unlimited"])
]
GivenQuota = Annotated[
    Quota, Form(nominal=QuotaAmount, borrowing_limit=Nullable[QuotaAmount], lending_limit=Nullable[QuotaAmount])
]
"""A quota; an absent limit means unlimited."""


class _CohortQuota(Given, frozen=True, kw_only=True):
    flavor: str
    resource: str
    quota: Flat[GivenQuota]


class _Cohort(Given, frozen=True, kw_only=True):
    name: str
    parent: Nullable[str] = ""
    fair_weight: Nullable[str] = "1"
    quotas: Nullable[list[_CohortQuota]] = []

    def spec(self, field: str) -> NodeSpec:
        """Convert to the rule's type."""
        quotas = (
            (FlavorResource(one.flavor, resource_of(one.resource, f"{field}.quotas[{at}].resource")), one.quota)
            for at, one in enumerate(self.quotas)
        )
        weight = _weight(self.fair_weight, f"{field}.fair_weight")
        return NodeSpec(self.name, self.parent or None, _once(quotas, f"{field}.quotas"), weight)


class _FlavorQuotas(Given, frozen=True, kw_only=True):
    name: str
    quotas: dict[str, GivenQuota] = {}


class GivenResourceGroup(Given, frozen=True, kw_only=True):
    """Resources of the same flavor; flavors in the order of preference."""

    resources: list[str] = []
    flavors: list[_FlavorQuotas] = []


class GivenClusterQueue(Given, frozen=True, kw_only=True):
    """A ClusterQueue."""

    name: str
    cohort: Nullable[str] = ""
    fair_weight: Nullable[str] = "1"
    resource_groups: Nullable[list[GivenResourceGroup]] = []

    def spec(self, field: str) -> NodeSpec:
        """Convert to the rule's type."""
        quotas = (
            (
                FlavorResource(flavor.name, resource_of(key, f"{field}.resource_groups[{at}].flavors[{index}].quotas")),
                one,
            )
            for at, group in enumerate(self.resource_groups)
            for index, flavor in enumerate(group.flavors)
            for key, one in flavor.quotas.items()
        )
        weight = _weight(self.fair_weight, f"{field}.fair_weight")
        return NodeSpec(self.name, self.cohort or None, _once(quotas, f"{field}.resource_groups"), weight)


def _once(pairs: Iterable[tuple[FlavorResource, Quota]], field: str) -> dict[FlavorResource, Quota]:
    quotas: dict[FlavorResource, Quota] = {}
    for of, quota in pairs:
        if of in quotas:
            raise CaseError(field, f"{written(of)} is given twice; accepted: one quota for each resource of a flavor")
        quotas[of] = quota
    return quotas


GivenCondition = Annotated[Condition, Form(strict=True, reason="", at_s=0)]
"""A condition; an absent status is True."""


class GivenWorkload(Given, frozen=True, kw_only=True):
    """A workload. Subclasses add a rule's other fields."""

    name: str
    uid: str | None = None
    priority: Whole | None = None
    created_s: Seconds = 0
    evicted: GivenCondition | None = None
    sub_priority: Nullable[Whole] = 0

    def queued(self) -> Queued:
        """Convert to the rule's type."""
        uid = self.name if self.uid is None else self.uid
        return Queued(uid, self.priority, self.created_s, self.evicted, self.sub_priority)


class Usage(NamedTuple):
    """Amounts that a pod set uses, and the flavors of its resources."""

    name: str
    pods: int | None
    flavors: Collection[FlavorResource]
    amounts: Mapping[FlavorResource, int]


class _Usage(Given, frozen=True, kw_only=True):
    name: str = ""
    count: QueueAmount | None = None
    flavors: dict[str, str] = {}
    usage: dict[str, QueueAmount] = {}

    def resolved(self, field: str) -> Usage:
        """Join the flavor of each resource, "" if it has none, with its total."""
        of = {
            key: FlavorResource(self.flavors.get(key, ""), resource_of(key, f"{field}.usage"))
            for key in self.flavors | self.usage
        }
        return Usage(self.name, self.count, of.values(), {of[key]: amount for key, amount in self.usage.items()})


class GivenAdmitted(GivenWorkload, frozen=True, kw_only=True):
    """A workload that holds quota."""

    cluster_queue: str
    pod_sets: list[_Usage] = []

    def used(self, field: str) -> list[Usage]:
        """Convert the usage of each pod set to the rule's type."""
        return [one.resolved(f"{field}.pod_sets[{at}]") for at, one in enumerate(self.pod_sets)]


class ClusterInput(Given, frozen=True, kw_only=True):
    """A cluster's cohorts, ClusterQueues and workloads that hold quota."""

    cohorts: Nullable[list[_Cohort]] = []
    cluster_queues: list[GivenClusterQueue]
    admitted: Nullable[list[GivenAdmitted]] = []

    def tree(self) -> QuotaTree:
        """Convert to the rule's type."""
        cohorts = [one.spec(f"input.cohorts[{at}]") for at, one in enumerate(self.cohorts)]
        queues = [one.spec(f"input.cluster_queues[{at}]") for at, one in enumerate(self.cluster_queues)]
        unique((one.name for one in cohorts), "input.cohorts[{}].name")
        unique((one.name for one in queues), "input.cluster_queues[{}].name")
        on_cycle = cohort_on_cycle(cohorts)
        if on_cycle is not None:
            at = next(index for index, one in enumerate(cohorts) if one.name == on_cycle)
            accepted = "accepted: a parent that is not a descendant of the cohort"
            raise CaseError(f"input.cohorts[{at}].parent", f"{cohorts[at].parent}: {accepted}")
        return quota_tree(queues, cohorts)

    def usage(self, tree: QuotaTree) -> QuotaUsage:
        """Compute the usage of all workloads that hold quota."""
        usage = QuotaUsage()
        for at, one in enumerate(self.admitted):
            node = known(tree.queues, one.cluster_queue, f"input.admitted[{at}].cluster_queue")
            for pod_set in one.used(f"input.admitted[{at}]"):
                for of, amount in pod_set.amounts.items():
                    usage.book(node, of, amount)
        return usage


class Probe(Given, frozen=True, kw_only=True):
    """An amount of a flavor's resource at a ClusterQueue."""

    cluster_queue: str
    flavor: str
    resource: GivenResource
    amount: QueueAmount = 0

    def at(self, tree: QuotaTree, field: str) -> tuple[QuotaNode, FlavorResource]:
        """Return the ClusterQueue and the flavor's resource."""
        node = known(tree.queues, self.cluster_queue, f"{field}.cluster_queue")
        return node, FlavorResource(self.flavor, self.resource)


class _Op(Probe, frozen=True, kw_only=True):
    op: Literal["add", "remove"]


class _QueueQuotaInput(ClusterInput, frozen=True, kw_only=True):
    ops: Nullable[list[_Op]] = []
    probes: Nullable[list[Probe]] = []


def calc_queue_quota(given: _QueueQuotaInput) -> Calculated:
    """Compute the quota, usage and available amount of every node, and check requests."""
    tree = given.tree()
    usage = given.usage(tree)
    after_each = []
    for at, op in enumerate(given.ops):
        node, of = op.at(tree, f"input.ops[{at}]")
        usage.book(node, of, op.amount if op.op == "add" else -op.amount)
        root_usage = None if node.parent is None else written_amount(usage.usage(node.root(), of))
        after_each.append({"available": written_amount(usage.available(node, of)), "root_usage": root_usage})
    named = {of for node in tree.nodes() for of in (*node.quotas, *usage.used(node))}
    nodes = {
        f"{'cq' if node.is_queue else 'cohort'}:{node.name}": {
            written(of): {
                "subtree_quota": written_amount(node.subtree_quota(of)),
                "usage": written_amount(usage.usage(node, of)),
                "local_available": written_amount(usage.local_available(node, of)),
                "available": written_amount(usage.available(node, of)),
                "potential_available": written_amount(potential_available(node, of)),
                "borrowing": usage.borrowing(node, of),
            }
            for of in sorted(named)
        }
        for node in tree.nodes()
    }
    probes = [_probed(probe, tree, usage, at) for at, probe in enumerate(given.probes)]
    return Calculated(
        output={"after_each_op": after_each, "nodes": nodes, "probes": [answer for answer, _ in probes]},
        because=[because for _, because in probes],
    )


def _probed(probe: Probe, tree: QuotaTree, usage: QuotaUsage, at: int) -> tuple[dict[str, int | bool], Because]:
    node, of = probe.at(tree, f"input.probes[{at}]")
    fits, borrowing = usage.fits(node, of, probe.amount), usage.borrowing(node, of, probe.amount)
    lowest = usage.lowest_fit(node, of, probe.amount)
    unit = unit_of(of.resource)
    because = Because(
        of=f"probes/{at}/{written(of)}",
        bound="short" if not fits else "borrowed" if borrowing else "own_quota",
        terms={
            f"requested_{unit}": probe.amount,
            f"nominal_{unit}": node.quota(of).nominal,
            f"usage_{unit}": usage.usage(node, of),
            f"available_{unit}": usage.available(node, of),
        },
    )
    answer = {"fits": fits, "borrowing_with": borrowing, "height": lowest.height, "below_root": lowest.below_root}
    return answer, because


def calc_queue_share(given: ClusterInput) -> Calculated:
    """Compute each node's borrowed share of the lendable amount."""
    tree = given.tree()
    usage = given.usage(tree)
    shares, because = {}, []
    for node in tree.nodes():
        name, share = f"{'cq' if node.is_queue else 'cohort'}:{node.name}", node_share(node, usage)
        endless, resource = math.isinf(share.share), share.dominant_resource
        shares[name] = {
            "share": "infinite" if endless else share.share,
            "rounded_share": "infinite" if endless else math.ceil(share.share),
            "ratio_per_mille": share.ratio_permille,
            "dominant_resource": key_of(resource),
            "borrowing_on": sorted(map(written, share.borrowing_on)),
        }
        if share.borrowing_on:
            # Of the dominant resource; there is none if nothing is lendable.
            unit = unit_of(resource)
            terms: Terms = (
                {f"borrowed_{unit}": share.borrowed[resource], f"lendable_{unit}": share.lendable[resource]}
                if resource
                else {}
            )
            terms |= {"ratio_permille": share.ratio_permille, "weight": share.weight}
            because.append(Because(of=f"shares/{name}", bound=key_of(resource) or "nothing_lendable", terms=terms))
    return Calculated(output={"shares": shares}, because=because)


class _PodSet(Given, frozen=True, kw_only=True):
    name: str
    count: QueueAmount
    reclaimable: QueueAmount = 0


def calc_queue_admitted_usage(*, pod_sets: Sequence[_PodSet], admission: Sequence[_Usage]) -> Calculated:
    """Compute the usage of an admitted workload by its pod sets and their admission."""
    unique((one.name for one in pod_sets), "input.pod_sets[{}].name")
    unique((one.name for one in admission), "input.admission[{}].name")
    by_name = {one.name: one for one in pod_sets}
    sets = []
    for at, one in enumerate(admission):
        spec = known(by_name, one.name, f"input.admission[{at}].name")
        used = one.resolved(f"input.admission[{at}]")
        sets.append(
            pod_set_usage(AdmittedPodSet(one.name, spec.count, spec.reclaimable, used.pods, usage=used.amounts))
        )
    return Calculated(
        output={
            "usage": {written(of): amount for of, amount in admitted_usage(sets).items()},
            "pod_sets": [{"name": one.name, "count": one.pods} for one in sets],
        },
        because=[
            Because(
                of=f"pod_sets/{one.name}/count",
                bound="reclaimed" if one.pods < one.admitted_pods else "admitted",
                terms={"admitted_count": one.admitted_pods, "count": one.pods},
            )
            for one in sets
        ],
    )
