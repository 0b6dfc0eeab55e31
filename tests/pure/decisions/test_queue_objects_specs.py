"""ClusterQueues, flavors, selectors and shares as the rules of the queue take them, and the record of an object."""

from __future__ import annotations

from typing import Any

import pytest

from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue_objects import Metadata, SoldObject, SoldSpec
from slacktide.schemas.queue_objects import NodeSize as Size
from slacktide.streams.decisions.queue.assign import Fungibility, Group
from slacktide.streams.decisions.queue.cluster_objects import (
    QueueObjects,
    queue_cluster,
    sharing_queues,
    sold_flavors,
)
from slacktide.streams.decisions.queue.flavor_match import NodeFlavor, Taint
from slacktide.streams.decisions.queue.job import Toleration
from slacktide.streams.decisions.queue.preempt import Preemption
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, Quota
from slacktide.streams.decisions.queue.workload_objects import published
from testbed.queue_items import (
    CPU,
    MEMORY,
    SHARES,
    T0,
    cluster,
    cluster_queue,
    cohort,
    job,
    local_queue,
    objects,
    resource,
    workload,
)

Json = dict[str, Any]


def test_a_cluster_queue_has_its_quotas_place_and_policies() -> None:
    given = cluster_queue(
        "a",
        resource("cpu", 2, borrowingLimit="500m", lendingLimit="1"),
        resource("memory", "1Ki"),
        cohortName="c",
        queueingStrategy="StrictFIFO",
        preemption={
            "withinClusterQueue": "LowerPriority",
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 9},
        },
        flavorFungibility={
            "whenCanBorrow": "TryNextFlavor",
            "whenCanPreempt": "MayStopSearch",
            "preference": "PreemptionOverBorrowing",
        },
        fairSharing={"weight": "500m"},
    )
    plain = cluster_queue("b", preemption={}, flavorFungibility={}, cohort="old")
    cohorts = cohort("c", parentName="p"), cohort("old", parent="p")
    a, b, c = cluster(given, plain, cluster_queue("c"), *cohorts).queues

    assert a.node.quotas == {CPU: Quota(2_000, 500, 1_000), MEMORY: Quota(1_024, None, None)}
    assert [one.name for one in a.node.ancestors()] == ["c", "p"]
    assert [one.name for one in b.node.ancestors()] == ["old", "p"], "names of v1beta1"
    assert (a.node.fair_weight, b.node.fair_weight, c.node.parent) == (0.5, 1.0, None)
    assert (a.strategy, b.strategy) == ("StrictFIFO", "BestEffortFIFO")
    assert a.groups == (Group(frozenset({"cpu", "memory"}), ("f",)),)
    assert a.policies == Preemption("LowerPriority", "Any", borrow_within_cohort=True, priority_max=9)
    assert [one.policies for one in (b, c)] == [Preemption(), Preemption()]
    assert a.fungibility == Fungibility(True, False, True)
    assert b.fungibility == Fungibility(False, True, False)
    assert c.fungibility == Fungibility()
    never = cluster_queue(preemption={"borrowWithinCohort": {"policy": "Never", "maxPriorityThreshold": 1}})
    assert not cluster(never).queues[0].policies.borrow_within_cohort


def test_a_flavor_has_its_nodes_labels_taints_and_tolerations() -> None:
    taint = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
    spec = {"nodeLabels": {"pool": "spot"}, "nodeTaints": [taint], "tolerations": [{"operator": "Exists", **taint}]}
    found = cluster({"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": spec}).flavors

    assert found == {
        "f": NodeFlavor(
            {"pool": "spot"},
            (Taint("spot", "yes", "NoSchedule"),),
            (Toleration("spot", "Exists", "yes", "NoSchedule"),),
        )
    }


def test_a_cluster_queue_takes_the_namespaces_that_its_selector_selects() -> None:
    def matches(selector: Json | None, *more: Json, namespace: str = "ns") -> bool:
        given = cluster_queue(namespaceSelector=selector), local_queue(namespace=namespace)
        return QueueObjects(objects(*given, *more)).place(namespace, "q")[1]

    team = {"kind": "Namespace", "metadata": {"name": "ns", "labels": {"team": "a"}}}
    assert not matches(None), "without a selector none"
    assert matches({})
    assert matches({"matchLabels": {"team": "a"}}, team)
    assert not matches({"matchLabels": {"team": "b"}}, team)
    assert not matches({"matchLabels": {"team": "a"}})
    assert matches({"matchLabels": {"kubernetes.io/metadata.name": "ns"}})
    assert matches({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["b"]}]}, team)
    assert not matches({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, team)
    with pytest.raises(CaseError, match=r"ClusterQueue cq: spec\.namespaceSelector"):
        matches({"matchExpressions": [{"key": "team", "operator": "Near"}]}, team)


def test_a_local_queue_is_missing_or_its_cluster_queue_is() -> None:
    found = QueueObjects(objects(cluster_queue(), local_queue(), local_queue("gone", "other")))
    assert found.place("ns", "q") == ("cq", True, "")
    assert found.place("ns", "x") == (None, False, "LocalQueue ns/x")
    assert found.place("other", "q") == (None, False, "ClusterQueue gone")
    unnamed = {"kind": "LocalQueue", "metadata": {"name": "q"}, "spec": {"clusterQueue": "cq"}}
    assert QueueObjects(objects(cluster_queue(), unnamed)).place("default", "q")[0] == "cq"


def test_a_share_of_what_is_sold_replaces_the_nominal_quota_and_nodes_have_sizes() -> None:
    sold = SoldObject(
        metadata=Metadata(name="f"),
        spec=SoldSpec(cpu_milli=3_000, memory_bytes=10, nodes=[Size(cpu_milli=3, memory_bytes=4)]),
    )
    other = SoldObject(metadata=Metadata(name="g"), spec=sold.spec)
    given = objects(
        cluster_queue("a", resource(), resource("pods", 7), metadata={"annotations": SHARES}), cluster_queue("b")
    )
    found = queue_cluster([*given, sold, other])

    assert [dict(one.node.quotas) for one in found.queues] == [
        {CPU: Quota(1_500), FlavorResource("f", "pods"): Quota(7)},
        {CPU: Quota(4_000)},
    ]
    assert found.sizes == {"f": [(3, 4)]}, "nobody shares what g sells"
    assert queue_cluster(given).queues[0].node.quotas[CPU] == Quota(0), "nothing is known"
    assert queue_cluster([*given, SoldObject(metadata=Metadata(name="f"))]).sizes == {}
    assert sharing_queues(given) == {"a"}
    assert sold_flavors(given) == {"f"}
    assert sold_flavors(objects(cluster_queue("b"))) == set()
    inner = objects(cohort("c", {"annotations": SHARES}, resourceGroups=cluster_queue()["spec"]["resourceGroups"]))
    assert (sharing_queues(inner), sold_flavors(inner)) == (frozenset(), {"f"})


def test_amounts_are_rounded_up_and_have_a_most() -> None:
    found = cluster(cluster_queue("a", resource("cpu", "1u"), resource("memory", "100E")))
    assert [one.nominal for one in found.queues[0].node.quotas.values()] == [1, 2**63 - 1]
    whole = cluster(cluster_queue("a", resource("apples", "2"), {"name": "pears"})).queues[0].node.quotas
    assert [one.nominal for one in whole.values()] == [2, 0], (
        "only CPU is in thousandths; without a quota there is none"
    )


def test_a_record_keeps_what_decisions_go_by() -> None:
    labels, annotations = {"team": "a"}, {**SHARES, "slacktide.io/run-seconds": "5", "kubectl": "x"}
    about = {"labels": labels, "annotations": annotations, "generation": 3}
    queue, waits, space, bare = objects(
        cluster_queue("a", metadata={**about, "uid": "u"}),
        workload(metadata={**about, "uid": "", "creationTimestamp": None}),
        {"kind": "Namespace", "metadata": {"name": "ns", **about}},
        {"kind": "Workload", "metadata": {"name": "w", "uid": "", "creationTimestamp": T0}, "spec": {}},
    )
    made = published(queue, T0)
    assert made is not None
    assert made.key == "ClusterQueue/a"
    kept = made.message.cluster_queue.metadata  # type: ignore[union-attr]
    assert (kept.uid, kept.generation, kept.labels, kept.creation_timestamp) == ("u", 3, None, None)
    assert kept.annotations == {**SHARES, "slacktide.io/run-seconds": "5"}
    made = published(waits, T0)
    assert made is not None
    assert made.key == made.message.uid == "workload/ns/w"  # type: ignore[union-attr]
    assert made.message.workload.metadata.creation_timestamp == T0  # type: ignore[union-attr]
    made = published(space, T0)
    assert made is not None
    assert made.message.namespace.metadata.labels == labels  # type: ignore[union-attr]
    made = published(bare, "later")
    assert made is not None
    assert (made.key, made.message.workload.metadata.creation_timestamp) == ("workload/default/w", T0)  # type: ignore[union-attr]
    assert made.message.workload.metadata.annotations is None  # type: ignore[union-attr]
    assert published(objects(job())[0], T0) is None
