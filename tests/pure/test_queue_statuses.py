"""What ClusterQueues and LocalQueues show: who waits, what is used and borrowed, and whether they can admit."""

from typing import Any

import msgspec

from slacktide.agents.cluster.queue.job import Job
from slacktide.agents.cluster.queue.known import SOURCE, Known, Place
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.cluster.queue.status import Queue, statuses
from slacktide.schemas.queue import QueueState
from slacktide.schemas.queue_objects import KINDS, QueueObject
from slacktide.schemas.topics import QUEUE_SPEC
from slacktide.streams.records import Record
from testbed.scenarios import plain, scenarios
from testbed.vectors import each_row

Json = dict[str, Any]
NOW_MS = 1_700_000_000_000


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


@scenarios("queue_statuses")
def test_queue_statuses(case: dict[str, Any]) -> None:
    """Jobs, the queue's states of them, the flavors that exist, and the statuses that stand and that are due."""
    works = [job(uid, queue, **dict(*more)) for uid, queue, *more in case["jobs"]]
    states = {one.uid: one for one in msgspec.convert(case["states"] or [], list[QueueState])}
    stands = {Queue(*queue): status for *queue, status in case.get("stands", [])}
    found = statuses(objects(*case["flavors"]), {one.metadata.uid: one for one in works}, states, stands, NOW_MS)

    assert [[*queue, plain(status)] for queue, status in found.items()] == case["gives"]


@each_row("stopped", "reasons")
def test_a_stopped_queue_is_not_active(stopped: set[str], reasons: list[str]) -> None:
    queues = [
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, stop_policy="Hold"))
        if one.metadata.name in stopped
        else one
        for one in objects("spot")
    ]
    found = [status["conditions"][0]["reason"] for status in statuses(queues, {}, {}, {}, NOW_MS).values()]
    assert found == [*reasons, "ClusterQueueDoesNotExist"]


def test_a_cluster_queue_that_needs_an_admission_check_is_not_active() -> None:
    def active(**rule: Any) -> tuple[str, str]:
        spec = {"admissionChecksStrategy": {"admissionChecks": [{"name": "provision", **rule}]}}
        given = [made("ClusterQueue", "all", {"namespaceSelector": {}, **spec})]
        [status] = statuses(given, {}, {}, {}, NOW_MS).values()
        return status["conditions"][0]["reason"], status["conditions"][0]["message"]

    assert active() == ("AdmissionCheckNotFound", "Can't admit new workloads: needs the admission check provision.")
    assert active(onFlavors=["spot"])[0] == "Ready", "workloads of other flavors are admitted"


def in_cluster(kind: str, name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": spec}


@each_row("kind", "valid", "invalid")
def test_an_invalid_object_costs_no_status_and_its_valid_record_stays(kind: str, valid: Json, invalid: Json) -> None:
    """Also if the bridge never saw the valid one: a new leader does not delete what the decider goes by."""
    key = f"{kind}/all"
    place = Place(QUEUE_SPEC.name, key)
    record = Record(topic=QUEUE_SPEC.name, partition=0, offset=1, timestamp_ms=0, key=key.encode(), value=b"{}",
                    headers=(("ce_source", SOURCE.encode()),))  # fmt: skip
    for first in ([valid], []):
        known = Known()
        source = Source(known)
        source._object("Cohort", in_cluster("Cohort", "all-below", parentName="all"))
        source._object("ClusterQueue", in_cluster("ClusterQueue", "other"))
        known.read(record)
        for spec in [*first, invalid]:
            source._object(kind, in_cluster(kind, "all", **spec))
        known.complete()
        due = dict(known.pending(10))
        assert (due.get(place) is not None) is bool(first)
        assert (place in due) is bool(first)
        found = statuses(source.objects, {}, {}, {}, NOW_MS)
        assert Queue("ClusterQueue", "", "other") in found
        source._object_gone((kind, "", "all"))
        assert dict(known.pending(10))[place] is None
