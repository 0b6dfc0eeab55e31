"""The queue's objects as the rules take them: each field by its name, why some are left out, and their records."""

import json
from typing import Any

import pytest

from slacktide.schemas.errors import CaseError
from slacktide.schemas.queue import NodeSize, OfferedObject, OfferedSpec
from slacktide.schemas.queue_objects import Metadata
from slacktide.streams.decisions.queue.cluster_objects import (
    QueueObjects,
    offered_flavors,
    queue_cluster,
    sharing_queues,
)
from slacktide.streams.decisions.queue.kinds.files import read_objects
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, Quota
from slacktide.streams.decisions.queue.workload_objects import booked, published, wanted
from testbed.plain import plain
from testbed.vectors import stated

Json = dict[str, Any]
CPU = FlavorResource("f", "cpu")
SHARES = {"slacktide.io/quota-of": "batch", "slacktide.io/quota-percent": "50"}
T0 = "2026-03-01T12:00:00Z"
POD: Json = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}}


def objects(*items: Json) -> list[Any]:
    return read_objects([(f"items[{at}]", item) for at, item in enumerate(items)])


def resource(name: str = "cpu", nominal: Any = "4", **limits: Any) -> Json:
    return {"name": name, "nominalQuota": nominal, **limits}


def cluster_queue(name: str = "cq", *resources: Json, metadata: Json | None = None, **spec: Any) -> Json:
    given = list(resources or (resource(),))
    group = {"coveredResources": [one["name"] for one in given], "flavors": [{"name": "f", "resources": given}]}
    spec = {"resourceGroups": [group], "namespaceSelector": {}, **spec}
    return {"kind": "ClusterQueue", "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def cohort(name: str, metadata: Json | None = None, **spec: Any) -> Json:
    return {"kind": "Cohort", "metadata": {"name": name, **(metadata or {})}, "spec": spec}


def workload(name: str = "w", *, metadata: Json | None = None) -> Json:
    spec = {"queueName": "q", "podSets": [{"name": "main", "count": 2, "template": POD}]}
    about = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "creationTimestamp": T0, **(metadata or {})}
    return {"kind": "Workload", "metadata": about, "spec": spec}


def job(name: str = "j") -> Json:
    about = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "creationTimestamp": T0,
             "labels": {"kueue.x-k8s.io/queue-name": "q"}}  # fmt: skip
    return {"kind": "Job", "metadata": about, "spec": {"template": POD}}


def taken(given: dict[str, Any]) -> Any:
    """A workload by itself, the place of a LocalQueue, or all that decisions go by."""
    if "workload" in given:
        return plain(wanted(*objects(given["workload"])))
    items = objects(*given["items"])
    if "place" in given:
        return plain(QueueObjects(items).place(*given["place"]))
    found = queue_cluster(items)
    nodes = {
        one.name: [one.quotas, one.fair_weight, [*one.ancestors()]] for one in (each.node for each in found.queues)
    }
    return plain({"nodes": nodes, **found._asdict()})


@pytest.mark.parametrize(("given", "expected"), list(stated("queue_objects")))
def test_objects_are_taken_as_the_case_says(given: dict, expected: Any) -> None:
    try:
        found = json.loads(json.dumps(taken(given)))
    except CaseError as exc:
        found = {"error": str(exc)}
    assert found == expected


def test_a_workload_waits_in_a_cluster_queue_whose_selector_may_not_match_and_nothing_is_booked_of_nothing() -> None:
    one = wanted(*objects(workload()))
    assert [one.placed("cq", matches=each).pending.namespace_matches for each in (True, False)] == [True, False]
    assert booked([], {}, {}) == ({}, frozenset())


def test_a_share_of_what_is_sold_replaces_the_nominal_quota_and_nodes_have_sizes() -> None:
    sold = OfferedObject(
        metadata=Metadata(name="f"),
        spec=OfferedSpec(cpu_milli=3_000, memory_bytes=10, nodes=[NodeSize(cpu_milli=3, memory_bytes=4)]),
    )
    other = OfferedObject(metadata=Metadata(name="g"), spec=sold.spec)
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
    assert queue_cluster([*given, OfferedObject(metadata=Metadata(name="f"))]).sizes == {}
    assert sharing_queues(given) == {"a"}
    assert offered_flavors(given) == {"f"}
    assert offered_flavors(objects(cluster_queue("b"))) == set()
    inner = objects(cohort("c", {"annotations": SHARES}, resourceGroups=cluster_queue()["spec"]["resourceGroups"]))
    assert (sharing_queues(inner), offered_flavors(inner)) == (frozenset(), {"f"})


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


@pytest.mark.parametrize(("text", "number"), [("7", 7), ("-3", -3), ("high", 0), ("9" * 30, 0)])
def test_the_sub_priority_of_a_queued_object_travels_in_its_record(text: str, number: int) -> None:
    label = {"koordinator.sh/priority": text}
    given = job()
    given["metadata"]["labels"] |= {**label, "team": "a"}
    made = QueueObjects([]).workload_of(objects(given)[0])
    assert made is not None
    record = published(made, T0)
    assert record is not None
    kept = record.message.workload  # type: ignore[union-attr]
    assert kept.metadata.labels == label
    assert wanted(kept).pending.queued.sub_priority == number
