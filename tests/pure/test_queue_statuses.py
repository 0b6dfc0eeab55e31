"""What ClusterQueues and LocalQueues show: who waits, what is used and borrowed, and whether they can admit."""

from __future__ import annotations

from typing import Any

import msgspec

from slacktide.agents.cluster.queue.job import Job
from slacktide.agents.cluster.queue.status import Queue, statuses
from slacktide.schemas.queue import QueueBooking, QueuePodSet, QueueState
from slacktide.schemas.queue_objects import KINDS, QueueObject

Json = dict[str, Any]
NOW_MS = 1_700_000_000_000
NOW = "2023-11-14T22:13:20Z"
ALL = Queue("ClusterQueue", "", "all")
MAIN, OTHER = Queue("LocalQueue", "lab", "main"), Queue("LocalQueue", "lab", "other")


def made(kind: str, name: str, spec: Json, namespace: str = "") -> QueueObject:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, KINDS[kind])


def objects(*flavors: str) -> list[QueueObject]:
    resources = [{"name": "cpu", "nominalQuota": 1}, {"name": "memory", "nominalQuota": "1Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": resources}]}]
    return [
        made("ClusterQueue", "all", {"namespaceSelector": {}, "cohortName": "c", "resourceGroups": groups}),
        made("LocalQueue", "main", {"clusterQueue": "all"}, "lab"),
        made("LocalQueue", "other", {"clusterQueue": "gone"}, "lab"),
        *(made("ResourceFlavor", name, {}) for name in flavors),
    ]


def job(uid: str, queue: str = "main", *, annotations: Json | None = None, **status: Any) -> Job:
    labels = {"kueue.x-k8s.io/queue-name": queue}
    metadata = {"name": uid, "namespace": "lab", "uid": uid, "labels": labels, "annotations": annotations or {}}
    template = {"spec": {"containers": [{"name": "main"}]}}
    given = {"metadata": metadata, "spec": {"parallelism": 4, "completions": 4, "template": template}, "status": status}
    return Job(msgspec.Raw(msgspec.json.encode(given)))


def holds(uid: str, phase: Any = "reserved") -> QueueState:
    pods = QueuePodSet(
        name="main", count=4, flavors={"cpu": "spot", "memory": "spot"}, usage={"cpu": 1_200, "memory": 2**30}
    )
    booking = QueueBooking(epoch=1, turn=1, cluster_queue="all", reserved_ms=0, pod_sets=[pods])
    return QueueState(uid=uid, phase=phase, epoch=1, turn=1, booking=booking)


def counts(status: Json) -> tuple[int, int, int]:
    return status["pendingWorkloads"], status["reservingWorkloads"], status["admittedWorkloads"]


def shown(
    works: list[Job], states: list[QueueState], *flavors: str, stands: dict[Queue, Json] | None = None
) -> dict[Queue, Json]:
    by_uid = {one.metadata.uid: one for one in works}
    return statuses(objects(*(flavors or ("spot",))), by_uid, {one.uid: one for one in states}, stands or {}, NOW_MS)


def test_who_has_quota_and_who_waits_is_counted_by_cluster_queue_and_local_queue() -> None:
    done = {"conditions": [{"type": "Complete", "status": "True"}]}
    off = {"slacktide.io/queue-active": "false"}
    works = [job("a"), job("b"), job("c"), job("d", **done), job("e", annotations=off), job("f", "other"), job("g")]
    states = [
        *(holds("a"), holds("b", "evicting"), holds("elsewhere")),
        QueueState(uid="g", phase="pending", epoch=1, turn=1),
        QueueState(uid="d", phase="finished", epoch=1, turn=1),
    ]

    found = shown(works, states)

    assert counts(found[ALL]) == (2, 3, 3), "c was not tried yet"
    assert counts(found[MAIN]) == (2, 2, 2), "one was published by others, without a Job"
    assert counts(found[OTHER]) == (0, 0, 0), "its ClusterQueue does not exist"


def test_usage_is_without_pods_that_are_done_and_what_exceeds_the_nominal_quota_is_borrowed() -> None:
    found = shown([job("a"), job("b", succeeded=3)], [holds("a"), holds("b")])

    assert found[ALL]["flavorsUsage"] == [
        {
            "name": "spot",
            "resources": [
                {"name": "cpu", "total": "1500m", "borrowed": "500m"},
                {"name": "memory", "total": "1280Mi", "borrowed": "256Mi"},
            ],
        }
    ]
    assert found[MAIN]["flavorsReservation"][0]["resources"][0] == {"name": "cpu", "total": "1500m"}
    assert found[OTHER]["flavorsUsage"] == []


def test_a_condition_shows_what_is_missing_and_since_when() -> None:
    def active(found: dict[Queue, Json], queue: Queue) -> tuple[str, str, str]:
        [one] = found[queue]["conditions"]
        return one["status"], one["reason"], one["lastTransitionTime"]

    found = shown([], [])
    assert active(found, ALL) == ("True", "Ready", NOW)
    assert active(found, MAIN) == ("True", "Ready", NOW)
    assert active(found, OTHER) == ("False", "ClusterQueueDoesNotExist", NOW)

    before = {"type": "Active", "status": "True", "lastTransitionTime": "2023-01-01T00:00:00Z"}
    stands: dict[Queue, Json] = {one: {"conditions": [before]} for one in (ALL, MAIN)}
    assert active(shown([], [], stands=stands), ALL) == ("True", "Ready", "2023-01-01T00:00:00Z")
    found = shown([], [], "another", stands=stands)
    assert active(found, ALL) == ("False", "FlavorNotFound", NOW)
    assert "spot" in found[ALL]["conditions"][0]["message"]
    assert active(found, MAIN) == ("False", "ClusterQueueIsInactive", NOW)
