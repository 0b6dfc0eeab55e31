"""Workloads and Jobs as the rules of the queue take them: each field by its name, and why some are left out."""

from __future__ import annotations

from typing import Any

import pytest

from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue_objects import WorkloadObject
from slacktide.streams.decisions.queue.assign import PodSet
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeNeeds
from slacktide.streams.decisions.queue.job import Toleration
from slacktide.streams.decisions.queue.queue_order import Condition, Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource
from slacktide.streams.decisions.queue.workload_objects import Wanted, booked, wanted
from testbed.queue_items import (
    CPU,
    T0,
    T0_S,
    admitted,
    cluster,
    cluster_queue,
    condition,
    job,
    local_queue,
    objects,
    pod,
    resource,
    workload,
)

Json = dict[str, Any]


def wanted_of(item: Json) -> Wanted:
    [one] = objects(item)
    assert isinstance(one, WorkloadObject)
    return wanted(one)


def test_a_workload_is_taken_with_all_that_a_queue_goes_by() -> None:
    given = workload(
        metadata={"generation": 7},
        priority=5,
        active=False,
        status={
            "conditions": [condition("Evicted", reason="Preempted"), condition("Requeued", "False", "Backoff")],
            "requeueState": {"count": 1, "requeueAt": "2026-03-01T12:00:10"},
            "reclaimablePods": [{"name": "main", "count": 1}],
        },
    )
    one = wanted_of(given)

    assert (one.uid, one.namespace, one.name, one.local) == ("uid-w", "ns", "w", "q")
    assert (one.active, one.finished, one.done, one.admission) == (False, False, {"main": 1}, None)
    assert one.pending.queued == Queued("uid-w", 5, T0_S, Condition("Preempted", T0_S))
    assert one.pending.requeued == Condition("Backoff", T0_S, status=False)
    assert (one.pending.generation, one.pending.requeue_at_s) == (7, T0_S + 10), "without an offset it is UTC"
    assert one.pod_sets == (PodSet("main", 2, None, {"cpu": 1_000}, NodeNeeds()),)
    assert [one.placed("cq", matches=each).pending.namespace_matches for each in (True, False)] == [True, False]


def test_a_workload_that_names_little_has_defaults() -> None:
    one = wanted_of({"kind": "Workload", "metadata": {"name": "w"}, "spec": {}})

    assert (one.uid, one.namespace, one.active, one.done) == (
        "workload/default/job-w-" + one.uid[-5:],
        "default",
        True,
        {},
    )
    assert (one.pending.queued.created_s, one.pending.requeue_at_s, one.pending.generation) == (0, None, 0)
    assert wanted_of(workload(status={"conditions": [condition("Finished")]})).finished
    assert not wanted_of(workload(status={"conditions": [condition("Finished", "False")]})).finished
    untimed = wanted_of(workload(status={"conditions": [condition("Evicted", at=None)]}))
    assert untimed.pending.queued.evicted == Condition("r", 0)


def test_what_a_workload_holds_counts_only_with_its_condition() -> None:
    held = wanted_of(workload(status=admitted())).admission
    assert held is not None
    assert held.cluster_queue == "cq"
    reserved = [[condition("QuotaReserved", status)] for status in ("False", "Unknown")]
    for conditions in ([], *reserved, [condition("Admitted")]):
        assert wanted_of(workload(status=admitted(conditions=conditions))).admission is None


@pytest.mark.parametrize(("least", "taken"), [(None, None), (-1, None), (0, None), (1, 1), (2, None), (3, None)])
def test_partial_admission_is_below_the_count_and_above_0(least: int | None, taken: int | None) -> None:
    [one] = wanted_of(workload(podSets=[{"count": 2, "minCount": least, "template": pod()}])).pod_sets
    assert one.min_pods == taken


def test_a_pod_asks_by_its_containers_and_for_nodes() -> None:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}, {}]
            }
        }
    }
    init = {"name": "init", "resources": {"requests": {"cpu": "1"}}}
    spec = pod(
        "100m",
        initContainers=[{**init, "restartPolicy": "Always"}, {**init, "resources": {"limits": {"cpu": "1500m"}}}],
        overhead={"cpu": "1m"},
        nodeSelector={"disk": "ssd"},
        affinity=affinity,
        tolerations=[{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    )
    [one] = wanted_of(workload(podSets=[{"template": spec}])).pod_sets

    assert one.requests == {"cpu": 2_501}, "the init container runs beside the sidecar"
    assert one.nodes == NodeNeeds(
        {"disk": "ssd"}, ((Expression("zone", "In", ("a",)),), ()), (Toleration("k", "Exists", "", "NoSchedule"),)
    )
    [whole] = wanted_of(workload(podSets=[{"template": pod(resources={"requests": {"cpu": 3}})}])).pod_sets
    assert whole.requests == {"cpu": 3_000}, "of the pod as a whole"


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (workload(podSets=[{"template": pod("x")}]), "Workload ns/w: container main: cpu: 'x' is not a quantity"),
        (workload(metadata={"creationTimestamp": "noon"}), "ns/w: 'noon' is not a time"),
        (workload(status={"conditions": [condition("Evicted", at="noon")]}), "Evicted: 'noon' is not a time"),
        (workload(metadata={"annotations": {"slacktide.io/run-seconds": "1s"}}), "ns/w: metadata.annotations"),
        (workload(metadata={"annotations": {"slacktide.io/run-seconds": "1" * 11}}), "accepted: whole seconds"),
        (cluster_queue("a", resource(nominal="x")), "ClusterQueue a: cpu: 'x' is not a quantity"),
        (cluster_queue("a", fairSharing={"weight": "x"}), "ClusterQueue a: spec.fairSharing.weight: 'x'"),
        (
            {"kind": "Cohort", "metadata": {"name": "c"}, "spec": {"parentName": "c"}},
            "Cohort c: it is its own ancestor",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_object(item: Json, error: str) -> None:
    with pytest.raises(CaseError) as raised:
        cluster(item)
    assert error in str(raised.value)


def test_other_kinds_are_left_out_and_a_bad_shape_has_its_path() -> None:
    assert objects({"kind": "Pod", "metadata": {"name": "p"}}, {}) == []
    with pytest.raises(CaseError, match=r"items\[0\]\.spec\.queueName"):
        objects(workload(queueName=1))


def test_workloads_hold_wait_or_are_done() -> None:
    items = (
        workload("holds", status=admitted(), priority=3),
        workload("half", status=admitted(reclaimablePods=[{"name": "main", "count": 1}])),
        workload("whole", status=admitted(count=None)),
        workload("waits"),
        workload("done", status=admitted(conditions=[condition("QuotaReserved"), condition("Finished")])),
        workload("off", active=False),
        workload("lost", status=admitted(queue="gone")),
        workload("given-back", status=admitted(conditions=[condition("QuotaReserved", "False")])),
        workload("nowhere", queueName="x"),
    )
    found = cluster(cluster_queue(), local_queue(), *items)

    assert [(one.queued.uid, dict(one.usage), one.reserved_at_s) for one in found.holders] == [
        ("uid-holds", {CPU: 2_000}, T0_S),
        ("uid-half", {CPU: 1_000}, T0_S),
        ("uid-whole", {CPU: 2_000}, T0_S),
    ]
    assert (found.holders[0].queued.priority, found.holders[0].assigned) == (3, {CPU})
    assert [one.pending.uid for one in found.admitted] == [
        f"uid-{name}" for name in ("holds", "half", "whole", "lost", "given-back")
    ]
    assert [one.pending.uid for one in found.waiting] == ["uid-waits"]
    assert found.names["uid-off"] == "ns/off"
    assert "uid-done" not in found.names
    assert found.latest_s == T0_S
    assert found.notes == [
        "Workload ns/lost: left out: ClusterQueue gone is not in the files",
        "Workload ns/off: left out: it is not active",
        "Workload ns/nowhere: left out: LocalQueue ns/x is not in the files",
    ]


def test_the_latest_time_is_that_of_any_workload() -> None:
    later = "2026-03-01T12:00:09+00:00"
    for given in (
        workload(metadata={"creationTimestamp": later}),
        workload(status={"conditions": [condition("Evicted", at=later)]}),
        workload(status=admitted(conditions=[condition("QuotaReserved", at=later)])),
    ):
        assert cluster(cluster_queue(), local_queue(), given).latest_s == T0_S + 9
    assert cluster().latest_s == 0


def test_a_job_without_a_workload_arrives_when_it_was_created() -> None:
    known = workload("of-b", metadata={"ownerReferences": [{"uid": "uid-b"}]})
    unlabelled = job("c", metadata={"labels": {}})
    found = cluster(cluster_queue(), local_queue(), job("a", parallelism=3, completions=2), job("b"), known, unlabelled)

    [one] = found.arriving
    assert (one.at_s, one.workload.pending.uid, one.workload.queue) == (T0_S, "uid-a", "cq")
    assert one.workload.pod_sets[0].pods == 2, "no more run at a time than are to complete"
    assert found.notes == ["Job ns/c: left out: it has no label kueue.x-k8s.io/queue-name"]


def test_a_job_has_the_priority_of_its_class_and_one_that_is_missing_leaves_it_out() -> None:
    def arrives(*classes: Json, label: str = "", **spec: Any) -> int | None:
        labels = {"kueue.x-k8s.io/queue-name": "q"} | ({"kueue.x-k8s.io/priority-class": label} if label else {})
        given = job(metadata={"labels": labels}, template=pod(**spec))
        return cluster(cluster_queue(), local_queue(), given, *classes).arriving[0].workload.pending.queued.priority

    def of(kind: str, name: str, value: int, **more: Any) -> Json:
        return {"kind": kind, "metadata": {"name": name}, "value": value, **more}

    assert arrives() == 0
    assert arrives(of("PriorityClass", "high", 5), priorityClassName="high") == 5
    assert arrives(of("PriorityClass", "any", 6, globalDefault=True)) == 6
    assert arrives(of("WorkloadPriorityClass", "w", 7), of("PriorityClass", "w", 5), label="w") == 7
    found = cluster(cluster_queue(), local_queue(), job(template=pod(priorityClassName="none")))
    assert found.notes == ["Job ns/j: left out: its priority class is not in the files"]


def test_how_long_a_job_runs_is_its_annotation_or_what_it_took() -> None:
    def took(**given: Any) -> int | None:
        return cluster(cluster_queue(), local_queue(), job(**given)).run_s.get("uid-j")

    start, end = {"startTime": T0}, "2026-03-01T12:00:05Z"
    labels = {"labels": {"kueue.x-k8s.io/queue-name": "q"}}
    assert took() is None
    assert took(status=start) is None
    assert took(status={**start, "completionTime": end}) == 5
    assert took(status={**start, "conditions": [condition("Failed", at=end)]}) == 5
    assert took(status={**start, "conditions": [condition("Suspended", at=end)]}) is None
    assert took(status={"startTime": end, "completionTime": T0}) == 0
    assert took(status={"completionTime": end}) is None
    noted = {**labels, "annotations": {"slacktide.io/run-seconds": "1" * 10}}
    assert took(metadata=noted, status={**start, "completionTime": end}) == 1_111_111_111


def test_what_is_booked_is_of_the_flavor_that_was_assigned() -> None:
    status = admitted()
    status["admission"]["podSetAssignments"][0] |= {
        "flavors": {"cpu": "f", "gpu": "g"},
        "resourceUsage": {"cpu": "2", "x": 1},
    }
    [one] = cluster(cluster_queue(), local_queue(), workload(status=status)).holders
    assert one.usage == {CPU: 2_000, FlavorResource("", "x"): 1}
    assert one.assigned == {CPU, FlavorResource("g", "gpu"), FlavorResource("", "x")}
    assert booked([], {}, {}) == ({}, frozenset())


def test_other_conditions_before_the_one_that_counts_make_no_difference() -> None:
    others = [condition("A", at=None), condition("Zzz", "False", at=None)]
    status = admitted(conditions=[*others, condition("QuotaReserved")])
    assert wanted_of(workload(status=status)).admission is not None
    [one] = cluster(cluster_queue(), local_queue(), workload(status=status)).holders
    assert one.reserved_at_s == T0_S
    start, at = {"startTime": T0}, "2026-03-01T12:00:05Z"
    done = job(status={**start, "conditions": [condition("Complete", at=at)]})
    assert cluster(cluster_queue(), local_queue(), done).run_s == {}, "only a failed Job has no other time of its end"


def test_quota_without_an_admission_is_not_held() -> None:
    found = cluster(cluster_queue(), local_queue(), workload(status={"conditions": [condition("QuotaReserved")]}))
    assert (found.holders, [one.uid for one in found.waiting]) == ([], ["uid-w"])


@pytest.mark.parametrize(("count", "used"), [(None, 2_000), (1, 2_000), (4, 1_000)])
def test_what_was_admitted_is_of_as_many_pods_as_the_admission_names(count: int | None, used: int) -> None:
    """The usage is of all that were admitted; of 4 the Workload still asks for 2."""
    [one] = cluster(cluster_queue(), local_queue(), workload(status=admitted(count=count))).holders
    assert one.usage == {CPU: used}


def test_times_have_offsets_and_numbers_may_be_texts() -> None:
    later = wanted_of(workload(metadata={"creationTimestamp": "2026-03-01T14:00:00+02:00", "generation": "7"}))
    assert (later.pending.queued.created_s, later.pending.generation) == (T0_S, 7)
    noted = workload(metadata={"annotations": {"slacktide.io/run-seconds": "5"}})
    assert cluster(cluster_queue(), local_queue(), noted).run_s == {"uid-w": 5}
