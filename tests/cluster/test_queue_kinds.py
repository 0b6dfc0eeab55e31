"""Kinds of other operators in the queue, on a real API server, without their operators.

The definitions are the test's own and accept any field; the test writes the status that an operator would write.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slacktide.deploy.cli.calc.calculations import Calculation
from slacktide.schemas.codec import decode
from slacktide.schemas.queue import QueueOutcome
from slacktide.schemas.topics import QUEUE_OUTCOME, QUEUE_STATE
from slacktide.streams.decisions.queue.kinds.placing import GATE
from slacktide.streams.decisions.queue.kinds.rows import ROWS
from testbed.cluster.api_server import ApiServer, Json, RefusedError
from testbed.cluster.bridge_rig import OPERATORS, BridgeRig
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.queue_rig import GROUP, POOL, QUEUE, Queue, install
from testbed.cluster.webhook import Webhook
from testbed.deciders import decider
from testbed.filled import FILES
from testbed.parts import Part
from testbed.queue_kinds import ROW
from testbed.vectors import lines
from testbed.waiting import soon

pytestmark = pytest.mark.cluster

CASES = {one["name"]: one for one in map(json.loads, lines("kinds"))}
PLURALS = {row.kind: f"/apis/{row.api_version}/namespaces/{{}}/{row.plural}" for row in ROWS}
RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
TRAINERS = "/apis/example.com/v1/namespaces/{}/trainers"
RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: trainers}
rules:
- {apiGroups: [example.com], resources: [trainers], verbs: [get, list, watch, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: trainers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: trainers}
subjects:
- {kind: ServiceAccount, name: slacktide-bridge, namespace: slacktide-system}
"""


@pytest.fixture(scope="module")
def queueing(cluster: ApiServer) -> Iterator[ApiServer]:
    """An API server with the kinds, a row for one of the user's, and no controller."""
    cluster.kubectl("apply", "-f", str(FILES / "kinds.yaml"))
    cluster.apply(RIGHTS)
    rows = {"metadata": {"name": "slacktide-queue-kinds"}, "data": {"Trainer": json.dumps(ROW)}}
    cluster.post(f"/api/v1/namespaces/{OPERATORS}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **rows})
    install(cluster)
    cluster.post(RUNTIMES, CASES["trainjob/start_and_stop"]["input"]["items"][1])
    return cluster


@pytest.fixture(scope="module")
def gating(queueing: ApiServer) -> Iterator[ApiServer]:
    """The same with the webhook, which gates pods and looks at evictions."""
    webhook = Webhook(queueing, queueing.folder, options=["--queue"])
    webhook.start()
    namespace = queueing.namespace("probed")

    def asked() -> bool:
        name = f"probe-{secrets.token_hex(4)}"
        given = {"metadata": {"name": name, "labels": {QUEUE: "none"}}, **pod()}
        return gates(queueing.post(PODS.format(namespace), given)["spec"]) == [GATE]

    queueing.wait(asked, "the API server asks the webhook", 60)
    yield queueing
    webhook.stop()


@pytest.fixture
async def deciding(rig: BridgeRig, tmp_path: Path) -> AsyncIterator[Part]:
    with decider(rig.bootstrap, tmp_path) as part:
        yield part


class Objects:
    """Objects of one kind in a queue whose quota is enough for one of them."""

    def __init__(self, server: ApiServer, given: Json, path: str, milli: int) -> None:
        self.queue, self._server, self._given = Queue(server, "0"), server, given
        quotas = [{"name": "cpu", "nominalQuota": f"{milli}m"}, {"name": "memory", "nominalQuota": "1Ti"}]
        groups = [
            {"coveredResources": ["cpu", "memory"], "flavors": [{"name": self.queue.flavor, "resources": quotas}]}
        ]
        server.patch(f"{GROUP}/clusterqueues/{self.queue.name}", {"spec": {"resourceGroups": groups}})
        self.path = path.format(self.queue.namespace)

    def create(self, name: str, **metadata: Any) -> Json:
        labels = {**metadata.pop("labels", {}), QUEUE: "main"}
        return self._server.post(self.path, self._given | {"metadata": {"name": name, "labels": labels, **metadata}})

    def status(self, name: str, status: Json) -> None:
        self._server.patch(f"{self.path}/{name}/status", {"status": status})

    def annotate(self, name: str, active: str) -> None:
        self._server.patch(f"{self.path}/{name}", {"metadata": {"annotations": {"slacktide.io/queue-active": active}}})

    def delete(self, name: str) -> None:
        self._server.delete(f"{self.path}/{name}")

    async def spec(self, name: str, what: str, enough: Callable[[Json], bool]) -> Json:
        """The spec of an object once it is so."""

        def read() -> Json:
            return self._server.get(f"{self.path}/{name}")["spec"]

        return await soon(lambda: asyncio.to_thread(read), f"{name} {what}", enough=enough)


def bare(value: Any) -> Any:
    """Without the labels and annotations that a start writes, and without what is empty."""
    if isinstance(value, dict):
        kept = {key: bare(one) for key, one in value.items() if key not in {"metadata", "labels", "annotations"}}
        return {key: one for key, one in kept.items() if one not in ({}, [])}
    return [bare(one) for one in value] if isinstance(value, list) else value


def started_as_calculated(spec: Json, case: Json, pool: str) -> Json:
    """The spec after the writes that ``slacktide calc kinds`` gives for this flavor."""
    admit = {name: {"node_selector": {POOL: pool}} for name in case["admit"]}
    line = json.dumps({"name": "a", "input": case["input"], "admit": admit})
    output = json.loads(Calculation("kinds").answer(line).line)["output"]
    given = json.loads(json.dumps(spec))
    for pointer, value in (item for write in output["start"] for item in write.items()):
        *path, last = pointer.removeprefix("/spec/").split("/")
        at: Any = given
        for key in path:
            at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
        at[last] = value
        if value is None:
            del at[last]
    return given


def suspended(kind: str, spec: Json) -> bool:
    return bool((spec["runPolicy"] if kind in {"MPIJob", "PyTorchJob"} else spec)["suspend"])


def true(*types: str) -> Json:
    return {"conditions": [{"type": one, "status": "True"} for one in types]}


KINDS = {
    "jobset/start_and_stop": (true("Suspended"), true("Completed")),
    "mpijob/start_and_stop": (true("Suspended"), true("Succeeded")),
    "own/pytorchjob/start_and_stop": (true("Suspended"), true("Failed")),
    "trainjob/start_and_stop": (true("Suspended"), true("Complete")),
    "rayjob/start_and_stop": (
        {"jobDeploymentStatus": "Suspended"},
        {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
    ),
    "own/raycluster/start_and_stop": ({"state": "suspended"}, None),
    "spark/start_moves_the_global_selector": (
        {"applicationState": {"state": "SUSPENDED"}},
        {"applicationState": {"state": "COMPLETED"}},
    ),
}
"""By case: the status of one that is stopped, and of one that has finished; None: it never finishes."""


@pytest.mark.parametrize("name", KINDS)
async def test_an_object_starts_by_the_exact_patch_frees_its_quota_and_is_stopped_and_requeued(
    name: str, queueing, rig, deciding
):
    case, (stopped, finished) = CASES[name], KINDS[name]
    given = (case["input"].get("items") or [case["input"]])[0]
    kind, expected = given["kind"], case["expected"]
    milli = sum(one["count"] * one["requests"]["cpu_milli"] for one in expected["pod_sets"])
    objects = Objects(queueing, given, PLURALS[kind], milli)
    rig.replica(queue=True)
    first = objects.create("first")
    spec = await objects.spec("first", "starts", lambda spec: not suspended(kind, spec))
    assert bare(spec) == bare(started_as_calculated(given["spec"], case, objects.queue.name))
    second = objects.create("second")
    await soon(lambda: rig.records(QUEUE_STATE.name, second["metadata"]["uid"]), "the second was tried")
    assert suspended(kind, queueing.get(f"{objects.path}/second")["spec"])
    if finished is None:
        objects.delete("first")
    else:
        objects.status("first", finished)
    await objects.spec("second", "starts on the quota of the first", lambda spec: not suspended(kind, spec))
    objects.annotate("second", "false")
    await objects.spec("second", "is suspended", lambda spec: suspended(kind, spec))
    objects.status("second", stopped)
    await objects.spec("second", "is as it was", lambda spec: bare(spec) == bare(given["spec"]))
    outcomes = [decode(one.value, QueueOutcome) for one in await rig.records(QUEUE_OUTCOME.name)]
    mine = first["metadata"]["uid"], second["metadata"]["uid"]
    ended = [] if finished is None else [(mine[0], "finished")]
    found = [(one.uid, one.result) for one in outcomes if one.uid in mine and one.result not in {"ready", "unready"}]
    assert list(dict.fromkeys(found)) == [(mine[0], "started"), *ended, (mine[1], "started"), (mine[1], "stopped")]
    objects.annotate("second", "true")
    await objects.spec("second", "starts again", lambda spec: not suspended(kind, spec))


async def test_a_finished_job_frees_its_quota_once_none_of_its_pods_runs(queueing, rig, deciding):
    case = CASES["mpijob/start_and_stop"]
    objects = Objects(queueing, case["input"], PLURALS["MPIJob"], 8_500)
    rig.replica(queue=True)
    objects.create("first")
    await objects.spec("first", "starts", lambda spec: not suspended("MPIJob", spec))
    labels = {"training.kubeflow.org/job-name": "first", "training.kubeflow.org/operator-name": "mpi-operator"}
    pods = f"/api/v1/namespaces/{objects.queue.namespace}/pods"
    container = {"name": "worker", "image": "none"}
    queueing.post(pods, {"metadata": {"name": "w", "labels": labels},
                         "spec": {"containers": [container], "nodeName": "n"}})  # fmt: skip
    second = objects.create("second")
    objects.status("first", true("Succeeded"))
    await soon(lambda: rig.records(QUEUE_STATE.name, second["metadata"]["uid"]), "the second was tried")
    outcomes = [decode(one.value, QueueOutcome) for one in await rig.records(QUEUE_OUTCOME.name)]
    assert "finished" not in {one.result for one in outcomes}
    assert suspended("MPIJob", queueing.get(f"{objects.path}/second")["spec"])
    queueing.patch(f"{pods}/w/status", {"status": {"phase": "Succeeded"}})
    await objects.spec("second", "starts", lambda spec: not suspended("MPIJob", spec))


PODS = "/api/v1/namespaces/{}/pods"


def pod(**spec: Any) -> Json:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}}
    return {"spec": {"containers": [container], **spec}}


def gates(spec: Json) -> list[str]:
    return [one["name"] for one in spec.get("schedulingGates", ())]


async def test_gated_pods_wait_for_quota_and_are_evicted_to_stop_them(gating, rig, deciding):
    objects = Objects(gating, pod(), PODS, 500)
    rig.replica(queue=True)
    objects.create("first")
    spec = await objects.spec("first", "may be scheduled", lambda spec: not gates(spec))
    assert spec["nodeSelector"] == {POOL: objects.queue.name}
    second = objects.create("second")
    await soon(lambda: rig.records(QUEUE_STATE.name, second["metadata"]["uid"]), "the second was tried")
    assert gates(gating.get(f"{objects.path}/second")["spec"]) == [GATE]
    objects.status("first", {"phase": "Succeeded"})
    await objects.spec("second", "may be scheduled", lambda spec: not gates(spec))
    objects.annotate("second", "false")

    def names() -> set[str]:
        return {one["metadata"]["name"] for one in gating.get(objects.path)["items"]}

    await soon(lambda: asyncio.to_thread(names), "the second is evicted", enough=lambda found: found == {"first"})
    third = objects.create("third")
    await objects.spec("third", "has the quota", lambda spec: not gates(spec))
    assert third["metadata"]["uid"]


async def test_a_group_of_pods_starts_whole_and_a_replacement_joins_it(gating, rig, deciding):
    objects = Objects(gating, pod(), PODS, 1_000)
    rig.replica(queue=True)

    def member(name: str, group: str) -> Json:
        labels = {"kueue.x-k8s.io/pod-group-name": group}
        return objects.create(name, labels=labels, annotations={"kueue.x-k8s.io/pod-group-total-count": "2"})

    member("a-0", "a")
    events = f"/api/v1/namespaces/{objects.queue.namespace}/events"

    def noted() -> list[str]:
        return [one["message"] for one in gating.get(events)["items"] if one["reason"] == "NotQueued"]

    [why] = await soon(lambda: asyncio.to_thread(noted), "an Event tells why it waits")
    assert why.startswith("group_incomplete: ")
    member("a-1", "a")
    for name in ("a-0", "a-1"):
        await objects.spec(name, "may be scheduled", lambda spec: not gates(spec))
    for name in ("b-0", "b-1"):
        member(name, "b")
    group = f"pod-group/{objects.queue.namespace}/b"
    await soon(lambda: rig.records(QUEUE_STATE.name, group), "the second group was tried")
    objects.delete("a-1")
    member("a-2", "a")
    await objects.spec("a-2", "joins its group, whose quota it has", lambda spec: not gates(spec))
    assert gates(gating.get(f"{objects.path}/b-0")["spec"]) == [GATE]
    for name in ("a-0", "a-2"):
        objects.status(name, {"phase": "Succeeded"})
    for name in ("b-0", "b-1"):
        await objects.spec(name, "may be scheduled", lambda spec: not gates(spec))


async def test_the_bridge_may_change_no_other_pod_and_no_image(gating, rig):
    objects = Objects(gating, pod(), PODS, 0)
    objects.create("queued")
    gating.post(objects.path, {"metadata": {"name": "other"}, **pod()})
    bridge = gating.account(SYSTEM, "slacktide-bridge")
    image = {"containers": [{**pod()["spec"]["containers"][0], "image": "other"}]}
    for name, patch in (("other", {"metadata": {"annotations": {"a": "b"}}}), ("queued", {"spec": image})):
        with pytest.raises(RefusedError, match="slacktide-bridge-queued-pods"):
            gating.request("PATCH", f"{objects.path}/{name}", patch, token=bridge.token)


def test_the_webhook_gates_what_names_a_queue_unless_its_controller_waits_itself(gating):
    namespace = gating.namespace("gated")

    def found(kind: str = "", api: str = "", **labels: str) -> list[str]:
        owner = {"apiVersion": api, "kind": kind, "name": "o", "uid": "u", "controller": True}
        metadata = {"name": f"p-{secrets.token_hex(3)}", "labels": {QUEUE: "main", **labels}}
        given = {"metadata": metadata | ({"ownerReferences": [owner]} if kind else {}), **pod()}
        return gates(gating.post(PODS.format(namespace), given)["spec"])

    assert found() == [GATE]
    assert found("ReplicaSet", "apps/v1") == [GATE]
    assert found("Job", "batch/v1") == []
    assert found("RayCluster", "ray.io/v1") == []
    assert found(**{"kueue.x-k8s.io/managed": "true"}) == []
    assert gates(gating.post(PODS.format(namespace), {"metadata": {"name": "plain"}, **pod()})["spec"]) == []


async def test_a_row_of_ones_own_needs_its_pod_sets_its_switch_and_its_end(queueing, rig, deciding):
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}}
    roles = [
        {"name": role, "replicas": count, "template": {"spec": {"containers": [container]}}, "kept": [None]}
        for role, count in {"driver": 1, "worker": 2}.items()
    ]
    given = {"apiVersion": "example.com/v1", "kind": "Trainer", "spec": {"halted": True, "roles": roles}}
    objects = Objects(queueing, given, TRAINERS, 1_500)
    rig.replica(queue=True)
    objects.create("first")
    spec = await objects.spec("first", "starts", lambda spec: not spec["halted"])
    labels = [one["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] for one in spec["roles"]]
    assert labels == ["driver", "worker"]
    assert {one["template"]["spec"]["nodeSelector"][POOL] for one in spec["roles"]} == {objects.queue.name}
    assert [one["kept"] for one in spec["roles"]] == [[None], [None]]
    second = objects.create("second")
    await soon(lambda: rig.records(QUEUE_STATE.name, second["metadata"]["uid"]), "the second was tried")
    objects.status("first", {"state": "Done"})
    await objects.spec("second", "starts", lambda spec: not spec["halted"])
