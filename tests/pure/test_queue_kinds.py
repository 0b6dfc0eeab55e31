"""Kinds of other operators: what a start and a stop write, what the queue publishes of them, and rows of one's own."""

import json
from typing import Any, cast

import msgspec
import pytest

from slacktide.agents.cluster.queue.job import JOB
from slacktide.agents.cluster.queue.kinds import KindWork, kind_of_row
from slacktide.agents.cluster.queue.known import SOURCE, Known
from slacktide.agents.cluster.queue.source import Source
from slacktide.agents.cluster.queue.work import MARK, Answer, Kind, Look, Write, due, merged
from slacktide.agents.kubernetes.api_server import ApiServer
from slacktide.agents.kubernetes.resource import JOBS
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.queue import QueueBooking, QueuePodSet, QueueState, QueueWorkload
from slacktide.schemas.queue_objects import ContainerSpec, Metadata, ResourceFlavorObject, ResourceFlavorSpec
from slacktide.schemas.topics import QUEUE_WORKLOAD
from slacktide.streams.decisions.queue.cluster_objects import queue_cluster
from slacktide.streams.decisions.queue.job import Admission, Conflict, Flavor, Toleration
from slacktide.streams.decisions.queue.kinds.files import own_rows, read_objects
from slacktide.streams.decisions.queue.kinds.rows import MPI_JOB, POD, ROWS, TRAIN_JOB, Row
from slacktide.streams.decisions.queue.kinds.table import Table
from slacktide.streams.records import Record
from testbed.queue_kinds import ROW
from testbed.vectors import each_row, lines

Json = dict[str, Any]
CASES = {one["name"]: one for one in map(json.loads, lines("kinds"))}
KEPT = {"metadata": {"annotations": {"slacktide.io/queue-former-selector": None}}}


def items_of(case: Json) -> list[Json]:
    given = case["input"]
    return given["items"] if given["kind"] == "List" else [given]


def patched(raw: Json, body: Json) -> Json:
    """As a merge patch leaves it: lists are replaced whole, and empty maps stay."""
    return _pruned(merged(raw, body))


def _pruned(raw: Json) -> Json:
    return {key: _pruned(one) if isinstance(one, dict) else one for key, one in raw.items() if one is not None}


def bare(raw: Any) -> Any:
    """A map that a patch left empty is as good as none."""
    if not isinstance(raw, dict):
        return [bare(one) for one in raw] if isinstance(raw, list) else raw
    kept = {key: bare(one) for key, one in raw.items()}
    return {key: one for key, one in kept.items() if one != {}}


STARTED = [name for name, case in CASES.items() if case["expected"].get("start") and "/" in name]


@pytest.mark.parametrize("name", [name for name in STARTED if items_of(CASES[name])[0]["kind"] != "Pod"])
def test_a_stopped_object_is_as_it_was_and_a_running_one_asks_for_the_same(name: str) -> None:
    case = CASES[name]
    raw, *others = items_of(case)
    table = Table()

    def read(now: Json) -> KindWork:
        return KindWork(lambda: table.read([now, *others]))

    admitted = {
        pod_set: Admission("w", "q", "batch", 1, (_flavor(one),), pod_set) for pod_set, one in case["admit"].items()
    }
    before, now, again = read(raw), raw, False
    while read(now).suspended:
        body = read(now).start(admitted, again=again)
        assert not isinstance(body, Conflict)
        now, again = patched(now, body), True
    assert read(now).pod_sets == before.pod_sets
    assert now != raw
    now = patched(now, read(now).stop())
    assert read(now).suspended
    back = read(now).back()
    now = now if back is None else patched(now, back.body)
    assert bare(patched(now, KEPT)) == bare(raw), "with all fields that nobody here knows"
    assert read(now).back() is None


def _flavor(one: Json) -> Flavor:
    tolerations = [Toleration(*(each.get(name, "") for name in Toleration._fields)) for each in one["tolerations"]]
    return Flavor(one["node_selector"], tuple(tolerations))


FIELDS = ["spec.replicatedJobs", "spec.workerGroupSpecs", "spec.rayClusterSpec.workerGroupSpecs"]


@pytest.mark.parametrize("name", ["jobset/start_and_stop", "rayjob/start_and_stop", "own/raycluster/start_and_stop"])
def test_a_list_is_written_whole_with_the_fields_that_are_not_read(name: str) -> None:
    raw = json.loads(json.dumps(items_of(CASES[name])[0]))
    for path in FIELDS:
        at: Any = raw
        for key in path.split("."):
            at = (at or {}).get(key)
        for one in at or ():
            one["unknown"] = {"kept": [1, None, "x"]}
    admitted = {key: Admission("w", "q", "b", 1, (_flavor(one),), key) for key, one in CASES[name]["admit"].items()}
    body = KindWork(lambda: Table().read([raw])).start(admitted, again=False)
    assert not isinstance(body, Conflict)
    written = [one for path in FIELDS if (one := _at(body, path)) is not None]
    assert written
    assert all(one["unknown"] == {"kept": [1, None, "x"]} for each in written for one in each)


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = (value or {}).get(key)
    return value


QUEUES: list[Json] = [
    {"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}},
    {"kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": {"namespaceSelector": {}, "resourceGroups": []}},
    {"kind": "LocalQueue", "metadata": {"name": "batch", "namespace": "lab"}, "spec": {"clusterQueue": "q"}},
    *({"kind": "PriorityClass", "metadata": {"name": name}, "value": 1} for name in ("low", "mid", "high")),
    {"kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 1},
]
AMOUNTS = {"cpu": "cpu_milli", "memory": "memory_bytes"}
KINDS = {row.kind for row in ROWS}


def test_a_simulation_reads_each_kind() -> None:
    read, left = 0, 0
    for case in CASES.values():
        expected = case["expected"]
        if "error" in expected or items_of(case)[0]["kind"] not in KINDS or expected["refused"] == "kind":
            continue
        given = queue_cluster(
            read_objects([(f"items[{at}]", one) for at, one in enumerate([*QUEUES, *items_of(case)])])
        )
        if expected["refused"] or expected["finished"] or expected.get("held"):
            assert not given.arriving
            assert expected["refused"] == "owned" or len(given.notes) == 1, case["name"]
            left += 1
            continue
        [arrival] = given.arriving
        found = [
            {
                "name": one.name,
                "count": one.pods,
                "requests": {AMOUNTS.get(of, of): n for of, n in one.requests.items()},
            }
            for one in arrival.workload.pod_sets
        ]
        assert found == expected["pod_sets"], case["name"]
        read += 1
    assert read > 100
    assert left > 50


def raw_of(given: Json, version: int = 1) -> msgspec.Raw:
    body = given | {"metadata": given["metadata"] | {"resourceVersion": str(version)}}
    return msgspec.Raw(
        msgspec.json.encode({key: one for key, one in body.items() if key not in {"kind", "apiVersion"}})
    )


def kind(row: Row) -> Kind:
    return kind_of_row(Table(), row)


def published(known: Known) -> dict[str, QueueWorkload | None]:
    return {place.key: value and decode(value, QueueWorkload) for place, value in known.pending(99)}


def test_a_trainjob_waits_for_its_runtime_and_says_so_once_they_are_listed() -> None:
    known, refused = Known(), list[str]()
    source = Source(known)
    source.refused = lambda _, one: refused.append(f"{one.name}: {one.refused}")
    given, runtime = items_of(CASES["trainjob/nodes_of_the_runtime"])
    source.put(kind(TRAIN_JOB), raw_of(given))
    assert (published(known), refused) == ({}, ["a: no_runtime"])
    named = runtime["metadata"]
    source._more["clustertrainingruntimes"] = {("", "", named["name"]): msgspec.Raw(msgspec.json.encode(runtime))}
    source._again(kind(TRAIN_JOB))
    [found] = published(known).values()
    assert found is not None
    assert [(one.name, one.count) for one in found.workload.spec.pod_sets] == [("node", 2)]


def test_what_has_finished_keeps_its_quota_while_a_pod_of_it_runs() -> None:
    known = Known()
    source = Source(known)
    given = items_of(CASES["mpijob/succeeded_with_workers_left"])[0]
    source.put(kind(MPI_JOB), raw_of(given))
    [(uid, found)] = published(known).items()
    assert found is not None
    assert not found.workload.status.conditions
    assert source.over(uid)
    found = published(known)[uid]
    assert found is not None
    assert found.workload.status.conditions
    assert not source.over(uid), "it is known"


GROUP = {one["metadata"]["name"]: one for one in items_of(CASES["pod/start_and_stop"])}
SPOT = ResourceFlavorObject(metadata=Metadata(name="spot"), spec=ResourceFlavorSpec(node_labels={"pool": "spot"}))


def booked(*roles: str, phase: Any = "reserved", count: int = 1, **more: Any) -> QueueState:
    sets = [QueuePodSet(name=one, count=count, flavors={"cpu": "spot"}, usage={"cpu": 1_000}) for one in roles]
    booking = QueueBooking(epoch=7, turn=3, cluster_queue="q", reserved_ms=0, pod_sets=sets)
    return QueueState(uid="u", phase=phase, epoch=7, turn=9, booking=booking, **more)


def test_a_group_is_one_workload_whose_pods_start_one_by_one_and_are_evicted_together() -> None:
    known = Known()
    source = Source(known)
    for one in GROUP.values():
        source.put(kind(POD), raw_of(one))
    [(uid, found)] = published(known).items()
    assert found is not None
    assert uid == "pod-group/lab/g"
    assert [(one.name, one.count) for one in found.workload.spec.pod_sets] == [("role-0", 1), ("role-1", 1)]
    pods = dict(GROUP)
    state = booked("role-0", "role-1")
    for number in range(2):
        step = due(source.works[uid][1], state, {"spot": SPOT})
        assert isinstance(step, Write)
        assert step.what == "start"
        name = step.body["metadata"]["name"]
        assert step.body["metadata"]["resourceVersion"] == "1"
        pods[name] = patched(pods[name], step.body)
        assert pods[name]["spec"]["nodeSelector"]["pool"] == "spot"
        source.put(kind(POD), raw_of(pods[name], 2 + number))
    assert due(source.works[uid][1], state, {"spot": SPOT}) == Answer(state.booking, "started")
    assert published(known)[uid] == found, "a start changes nothing of what it asks for"
    evicting = booked("role-0", "role-1", phase="evicting", started=True)
    work = source.works[uid][1]
    step = due(work, evicting, {})
    assert isinstance(step, Write)
    assert step.what == "stop"
    assert work.evicted == {"b-0": "uid-b-0", "b-1": "uid-b-1"}
    fresh = GROUP["b-0"]["metadata"] | {"uid": "uid-new"}
    source.put(kind(POD), raw_of(GROUP["b-0"] | {"metadata": fresh}, 8))
    assert source.works[uid][1].evicted == {"b-1": "uid-b-1"}, "its owner made one of them anew"
    source._work_gone(("Pod", "lab", "b-1"), kind(POD))
    assert uid not in source.works, "it waits for its other pod, and holds no quota"
    assert published(known) == {}


def test_a_kind_that_cannot_be_listed_holds_up_no_other_and_costs_no_record() -> None:
    known = Known()
    source = Source(known)
    follows = source.follows(cast("ApiServer", None), {"ClusterQueue": JOBS}, (JOB, kind(POD)))
    for one in follows:
        one.close()
    headers = [("ce_source", SOURCE.encode())]
    known.read(Record(topic=QUEUE_WORKLOAD.name, partition=0, offset=1, timestamp_ms=0, key=b"gone", value=b"1",
                      headers=headers))  # fmt: skip
    for name in ("ClusterQueue", "Job"):
        assert not source.listed
        source._listed(name)
    assert source.listed
    assert known.pending(9) == [], "it may be of a pod"
    source._listed("Pod")
    assert [value for _, value in known.pending(9)] == [None]


def test_a_trainer_that_drops_the_patches_is_refused() -> None:
    given, runtime = items_of(CASES["trainjob/start_and_stop"])
    marked = given | {"metadata": given["metadata"] | {"annotations": {MARK: "7/3 started"}}}
    step = due(KindWork(lambda: Table().read([marked, runtime])), booked("node", count=2), {"spot": SPOT})
    assert isinstance(step, Write)
    assert (step.what, "Trainer 2.2" in step.why) == ("refuse", True), step.why


def test_an_object_without_quota_that_finished_is_looked_at() -> None:
    given = items_of(CASES["mpijob/succeeded_with_workers_left"])[0]
    assert due(KindWork(lambda: Table().read([given])), None, {}) == Look(None, "finished")


def test_a_jobset_that_comes_to_another_flavor_reports_the_labels_that_its_jobs_keep() -> None:
    case = CASES["jobset/start_and_stop"]
    raw, names = items_of(case)[0], list(case["admit"])

    def admitted(labels: Json) -> dict[str, Admission]:
        return {name: Admission("w", "q", "b", 1, (Flavor(labels),), name) for name in names}

    def read(now: Json) -> KindWork:
        return KindWork(lambda: Table().read([now]))

    body = read(raw).start(admitted({"pool": "a", "rack": "1"}), again=False)
    assert not isinstance(body, Conflict)
    now = patched(patched(raw, body), {"spec": {"suspend": True}})
    back = read(now).back()
    assert back is not None
    now = patched(now, back.body)
    assert read(now).stale(admitted({"pool": "b", "rack": "2"})) == ""
    assert "rack" in read(now).stale(admitted({"pool": "b"}))


def row_error(**changed: Any) -> str:
    given = {key: one for key, one in (ROW | changed).items() if one is not ...}
    with pytest.raises(ConfigError) as refused:
        own_rows({"data": {"Trainer": json.dumps(given)}}, "ConfigMap ops/slacktide-queue-kinds")
    return str(refused.value).removeprefix("ConfigMap ops/slacktide-queue-kinds: data.Trainer")


@each_row("changed", "error")
def test_a_row_that_is_wrong_names_its_field_and_what_is_accepted(changed: Json, error: str) -> None:
    assert row_error(**changed) == error


def test_fields_that_are_missing_or_unknown_are_named() -> None:
    assert "missing required field `settled`" in row_error(settled=...)
    assert "unknown field `suspendd`" in row_error(suspendd="spec.suspend")


def test_a_kind_of_ones_own_is_read_by_its_row() -> None:
    [row] = own_rows({"data": {"Trainer": json.dumps(ROW)}}, "file")
    container = ContainerSpec(name="main")
    roles = [{"name": "x", "replicas": 2, "template": {"spec": {"containers": [{"name": "main"}]}}}]
    given = {"metadata": {"name": "t", "labels": {}}, "spec": {"halted": True, "roles": roles}}
    table = Table([row])
    work = kind_of_row(table, row).read([msgspec.Raw(msgspec.json.encode(given))])
    assert [(one.name, one.count, one.template.spec.containers) for one in work.pod_sets] == [("x", 2, [container])]
    assert (work.suspended, work.settled, work.finished, list(work.pods)) == (
        True, False, False, ["example.com/trainer=t"],
    )  # fmt: skip
    owned = given | {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "j",
            "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "Trainer", "name": "t", "controller": True}],
        },
    }
    assert table.read([owned]).refused == "owned"
