"""The job queue on a real node: what it evicts really stops there, and runs again when there is quota."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slacktide.agents.cluster.queue.work import ACTIVE
from testbed.cluster import queue_pods
from testbed.cluster.api_server import Json
from testbed.cluster.jobs import Batch
from testbed.cluster.queue_pods import POD_CPU
from testbed.cluster.queue_rig import GROUP, POOL, Queue
from testbed.cluster.real_node import RealNode

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]


@pytest.fixture
def node(queueing: RealNode) -> Iterator[RealNode]:
    """Without the label of flavors afterwards."""
    yield queueing
    queueing.kubectl("label", "node", queueing.name, f"{POOL}-")


def job(queue: Queue, name: str, folder: Path, **pod: Json) -> Batch:
    """A Job of one pod that runs until a file of the Job's name is there."""
    return queue.job(name, pod=queue_pods.template(folder, name)["spec"] | pod)


def runs(one: Batch) -> bool:
    return one.status.get("ready") == 1


def events(node: RealNode, one: Batch) -> dict[str, str]:
    found = node.get(f"/api/v1/namespaces/{one.namespace}/events")["items"]
    return {each["reason"]: each["message"] for each in found if each["involvedObject"]["name"] == one.name}


def test_the_owner_of_borrowed_quota_gets_it_back_and_the_borrowers_pods_stop_and_run_again(
    node: RealNode, tmp_path: Path
) -> None:
    reclaims = {"reclaimWithinCohort": "Any"}
    owner = Queue(node, POD_CPU, cohortName="lab", preemption=reclaims)
    borrower = Queue(node, POD_CPU, cohortName="lab", flavors=[owner.flavor])
    node.kubectl("label", "node", node.name, f"{POOL}={owner.name}")
    first = job(borrower, "first", tmp_path)
    node.wait(lambda: runs(first), "a Job runs on its own quota")
    second = job(borrower, "second", tmp_path)
    node.wait(lambda: runs(second), "another runs on borrowed quota")
    groups = {name: node.group("cpu", pod) for name, pod in ((each.name, each.pods()[0]) for each in (first, second))}
    assert all(group.exists() for group in groups.values())

    own = job(owner, "own", tmp_path)
    node.wait(lambda: runs(own), "the owner's Job runs")
    [stopped] = [each for each in (first, second) if not each.pods()]
    [stays] = [each for each in (first, second) if each is not stopped]
    assert not groups[stopped.name].exists()
    assert runs(stays)
    assert groups[stays.name].exists()
    assert stopped.spec["suspend"]
    assert events(node, stopped)["Evicted"].startswith("InCohortReclamation")

    (tmp_path / "own").touch()
    node.wait(lambda: runs(stopped), "it runs again")
    for name in ("first", "second"):
        (tmp_path / name).touch()
    for each in (own, first, second):
        node.wait(lambda each=each: each.finished, f"{each.name} has finished")


def test_a_job_runs_on_the_flavor_whose_nodes_it_selects_and_another_waits_for_it(
    node: RealNode, tmp_path: Path
) -> None:
    queue = Queue(node, POD_CPU)
    other = f"other-{queue.name}"
    queue.create("ResourceFlavor", other, {"nodeLabels": {POOL: other}})
    flavors = [
        {"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]}
        for name, cpu in ((queue.flavor, POD_CPU), (other, POD_CPU))
    ]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    node.patch(f"{GROUP}/clusterqueues/{queue.name}", {"spec": {"resourceGroups": groups}})
    node.kubectl("label", "node", node.name, f"{POOL}={other}")  # it is none of the first flavor
    chooses = job(queue, "chooses", tmp_path, nodeSelector={POOL: other})
    node.wait(lambda: runs(chooses), "it runs on the second flavor")
    assert f"cpu of {other}" in events(node, chooses)["Admitted"]

    waits = job(queue, "waits", tmp_path, nodeSelector={POOL: other})
    node.wait(lambda: "Waiting" in events(node, waits), "another waits for this flavor, though the first is free")
    assert not waits.pods()
    (tmp_path / "chooses").touch()
    node.wait(lambda: runs(waits), "the other runs")
    (tmp_path / "waits").touch()
    node.wait(lambda: waits.finished, "it has finished")


def test_a_job_that_is_made_inactive_by_hand_stops_and_runs_again_when_it_is_active(
    node: RealNode, tmp_path: Path
) -> None:
    queue = Queue(node, POD_CPU)
    node.kubectl("label", "node", node.name, f"{POOL}={queue.name}")
    held = job(queue, "held", tmp_path)
    node.wait(lambda: runs(held), "it runs")
    group = node.group("cpu", held.pods()[0])

    def annotate(active: str) -> None:
        node.kubectl("annotate", "job", "held", "-n", held.namespace, f"{ACTIVE}={active}", "--overwrite")

    annotate("false")
    node.wait(lambda: held.spec["suspend"] and not group.exists(), "its pod has stopped on the node")
    after = job(queue, "after", tmp_path)
    node.wait(lambda: runs(after), "another has its quota")
    (tmp_path / "after").touch()
    annotate("true")
    node.wait(lambda: runs(held), "it runs again")
    (tmp_path / "held").touch()
    node.wait(lambda: held.finished, "it has finished")
