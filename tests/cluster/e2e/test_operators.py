"""Objects of real operators in the queue: they wait suspended, run on the real node, stop for others, and run again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slacktide.deploy.cli.calc.calculations import Calculation
from testbed.cluster.api_server import Json
from testbed.cluster.installed import Installed
from testbed.cluster.operators import Operators
from testbed.cluster.queue_pods import template
from testbed.cluster.queue_rig import GROUP, POOL, QUEUE, Queue
from testbed.cluster.real_node import RealNode

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.operators, pytest.mark.timeout(600)]
URGENT = "urgent"
QUOTA = "35m"
"""Of three pods, not of four."""


@pytest.fixture(scope="module")
def operated(slacktide: Installed, queueing: RealNode) -> Iterator[Installed]:
    """The operators, whose kinds the queue finds, and a priority above all others."""
    operators = Operators(queueing)
    urgent = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 100}
    queueing.post(f"{GROUP}/workloadpriorityclasses", urgent | {"metadata": {"name": URGENT}})
    try:
        operators.start()
        yield slacktide
    finally:
        operators.stop()
        queueing.kubectl("label", "node", queueing.name, f"{POOL}-")


def job_set(folder: Path) -> Json:
    def jobs(name: str, replicas: int, pods: int) -> Json:
        spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template(folder, "train")}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    spec = {"suspend": True, "replicatedJobs": [jobs("leader", 1, 1), jobs("workers", 2, 1)]}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}


def mpi_job(folder: Path, clean: str = "Running") -> Json:
    """Without MPI: its operator looks at pods and at the launcher's Job, not at what runs in them."""
    replicas = {
        "Launcher": {"replicas": 1, "template": template(folder, "train")},
        "Worker": {"replicas": 2, "template": template(folder, "workers")},
    }
    policy = {"suspend": True, "cleanPodPolicy": clean, "backoffLimit": 0}
    spec = {"slotsPerWorker": 1, "runPolicy": policy, "mpiReplicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "spec": spec}


KINDS = {
    "JobSet": ("jobsets", job_set, "jobset.sigs.k8s.io/jobset-name=train", "Completed"),
    "MPIJob": ("mpijobs", mpi_job, "training.kubeflow.org/job-name=train", "Succeeded"),
}
"""By kind: its plural, what makes one of three pods, which pods are its, and its condition at the end."""


class Story:
    def __init__(self, slacktide: Installed, kind: str, folder: Path, cpu: str, **given: str) -> None:
        plural, make, self._selector, self.end = KINDS[kind]
        self._slacktide, self._node = slacktide, slacktide.node
        self.queue = Queue(self._node, cpu, preemption={"withinClusterQueue": "LowerPriority"})
        self.namespace = self.queue.namespace
        self._node.kubectl("label", "node", self._node.name, f"{POOL}={self.queue.name}", "--overwrite")
        made = make(folder, **given)
        path = f"/apis/{made['apiVersion']}/namespaces/{self.namespace}/{plural}"
        self._node.post(path, made | {"metadata": {"name": "train", "labels": {QUEUE: "main"}}})
        self._path = f"{path}/train"

    def object(self) -> Json:
        return self._node.get(self._path)

    def suspended(self) -> bool:
        spec = self.object()["spec"]
        return bool(spec.get("runPolicy", spec)["suspend"])

    def read(self) -> Json:
        """What the queue reads of it."""
        line = json.dumps({"name": "train", "input": self.object()})
        output: Json = json.loads(Calculation("kinds").answer(line).line)["output"]
        return output

    def holds_quota(self) -> bool:
        status = self._node.get(f"{GROUP}/clusterqueues/{self.queue.name}").get("status", {})
        return bool(status.get("admittedWorkloads"))

    def conditions(self) -> set[str]:
        found = self.object().get("status", {}).get("conditions", [])
        return {one["type"] for one in found if one["status"] == "True"}

    def phases(self) -> list[str]:
        """Of its pods, those that are being deleted included."""
        return [pod["status"]["phase"] for pod in self._node.pods(self.namespace, self._selector)]

    def events(self, name: str = "train") -> dict[str, str]:
        """Notes by reason: the newest of each."""
        found = self._node.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return {one["reason"]: one["message"] for one in found if one["involvedObject"]["name"] == name}

    def explained(self) -> str:
        with contextlib.suppress(AssertionError):  # nothing is published yet
            return self._slacktide.explain("job", f"{self.namespace}/train")
        return ""

    def wait(self, until: Callable[[], object], what: str) -> None:
        try:
            self._node.wait(until, what)
        except TimeoutError as late:
            told = [self.object(), self.phases(), self.events(), self.explained()]
            raise TimeoutError("\n".join(map(str, [late, *told]))) from late


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_waits_runs_is_preempted_by_another_waits_and_runs_to_its_end(
    kind: str, operated: Installed, tmp_path: Path
) -> None:
    story = Story(operated, kind, tmp_path, "0")
    story.wait(lambda: "Waiting" in story.events(), "an Event says why it waits")
    assert story.events()["Waiting"].startswith("ExceedsMaxQuota")
    story.wait(lambda: "Suspended" in story.conditions(), "its operator has seen that it is suspended")
    assert (story.suspended(), story.phases()) == (True, [])

    story.queue.quota(QUOTA)
    story.wait(lambda: story.phases() == ["Running"] * 3, "all its pods run")
    story.wait(lambda: story.read()["ready"], "its status says that all are ready")
    assert f"cpu of {story.queue.flavor}" in story.events()["Admitted"]

    urgent = story.queue.job("urgent", priority=URGENT, pod=template(tmp_path, "urgent")["spec"])
    story.wait(lambda: story.suspended() and "Suspended" in story.conditions(), "it is suspended for the urgent Job")
    story.wait(lambda: urgent.status.get("ready") == 1, "the urgent Job runs")
    assert story.phases() == []
    assert story.read() | {"settled": True, "ready": False, "finished": False} == story.read()
    story.wait(lambda: POOL not in str(story.object()["spec"]), "its templates are as they were")
    assert story.events()["Evicted"].startswith("InClusterQueue for the workload")
    story.wait(lambda: "preempted" in story.explained(), "explain says that it was preempted")
    assert f"by {story.namespace}/urgent" in story.explained()

    (tmp_path / "urgent").touch()
    story.wait(lambda: story.phases() == ["Running"] * 3, "all its pods run again")
    (tmp_path / "train").touch()
    story.wait(lambda: story.end in story.conditions(), "it has finished")
    assert story.read()["succeeded"]
    story.wait(lambda: not story.holds_quota(), "its quota is free")
    operated.node.kubectl("delete", "namespace", story.namespace, "--wait=false")


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_that_fails_frees_its_quota(kind: str, operated: Installed, tmp_path: Path) -> None:
    story = Story(operated, kind, tmp_path, QUOTA)
    story.wait(lambda: story.phases() == ["Running"] * 3, "all its pods run")
    story.wait(story.holds_quota, "its quota is taken")
    (tmp_path / "train").write_text("1")
    story.wait(lambda: "Failed" in story.conditions(), "it has failed")
    assert story.read()["succeeded"] is False
    story.wait(lambda: not story.holds_quota(), "its quota is free")
    operated.node.kubectl("delete", "namespace", story.namespace, "--wait=false")


def test_an_mpi_job_that_has_finished_holds_its_quota_until_its_workers_have_ended(
    operated: Installed, tmp_path: Path
) -> None:
    story = Story(operated, "MPIJob", tmp_path, QUOTA, clean="None")
    story.wait(lambda: story.phases() == ["Running"] * 3, "all its pods run")
    (tmp_path / "train").touch()
    story.wait(lambda: "Succeeded" in story.conditions(), "it has finished")
    following = story.queue.job("next", pod=template(tmp_path, "next")["spec"])
    story.wait(lambda: "Waiting" in story.events("next"), "the next Job waits for its quota")
    assert sorted(story.phases()) == ["Running", "Running", "Succeeded"]
    (tmp_path / "workers").touch()
    story.wait(lambda: following.status.get("ready") == 1, "the next Job runs")
    operated.node.kubectl("delete", "namespace", story.namespace, "--wait=false")
