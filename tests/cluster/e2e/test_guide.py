"""Koordinator's quick start, in the order printed: what a user of it has written works here unchanged."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cluster import images
from testbed.cluster.installed import Installed
from testbed.cluster.manifests import MANIFESTS
from testbed.cluster.real_node import RealNode
from testbed.rungs import NIGHTLY

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]

GUIDE = Path(__file__).with_name("guide")
EXAMPLES = MANIFESTS / "examples"
DEMO = "batch-demo"
Json = dict[str, Any]


def printed(name: str) -> Json:
    """A manifest as the guide prints it."""
    found: Json = yaml.safe_load((GUIDE / f"{name}.yaml").read_text())
    return found


def with_image(manifest: Json, *command: str, **resources: str) -> Json:
    """The guide's images exist nowhere: the same pods, with something in them that runs.

    Args:
        manifest: of a Job or a CronJob.
        command: that the container runs.
        resources: what it asks for, where the guide asks for more than a machine of two CPUs can sell.

    """
    job = manifest["spec"]["jobTemplate"] if manifest["kind"] == "CronJob" else manifest
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container |= {"image": images.BUSYBOX, "command": list(command)}
    if resources:
        container["resources"] = {"requests": resources, "limits": resources}
    return manifest


@pytest.fixture(scope="module")
def node(slacktide: Installed) -> Iterator[RealNode]:
    """The cluster with the guide's first steps done."""
    node = slacktide.node
    node.apply(GUIDE / "slo-controller-config.yaml")
    node.kubectl("create", "namespace", DEMO)
    node.kubectl("label", "namespace", DEMO, "koordinator.sh/enable-colocation=true")
    node.apply(GUIDE / "profile.yaml")
    node.wait(lambda: changed(node, DEMO), "the webhook knows the profile")
    yield node
    node.kubectl("delete", "namespace", DEMO, "--wait=false")


def changed(node: RealNode, namespace: str) -> bool:
    """Whether a pod with the guide's label would come out changed."""
    labelled = ["--labels=app-type=batch", "--dry-run=server", "-o", "yaml"]
    made = yaml.safe_load(node.kubectl("run", "asked", "-n", namespace, f"--image={images.BUSYBOX}", *labelled))
    return bool(made["metadata"]["labels"].get("koordinator.sh/qosClass") == "BE")


def pods_of(node: RealNode, job: str, namespace: str = DEMO) -> list[Json]:
    return node.pods(namespace, f"job-name={job}")


def complete(node: RealNode, job: str, within_s: float = 120.0, look: Callable[[], object] = lambda: None) -> None:
    def done() -> bool:
        look()
        conditions = node.get(f"/apis/batch/v1/namespaces/{DEMO}/jobs/{job}")["status"].get("conditions", [])
        return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)

    node.wait(done, f"job {job} completes", within_s)


def resources(pod: Json) -> dict[str, str]:
    """What its only container asks for; requests and limits are the same."""
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    found: dict[str, str] = container["resources"]["requests"]
    return found


def assert_batch(pod: Json, cpu: str, memory: str) -> None:
    """As the guide's step 4 shows it; the API writes 2000 as 2k."""
    assert pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
    assert pod["metadata"]["labels"]["koordinator.sh/mutated"] == "true"
    assert pod["spec"]["priorityClassName"] == "koord-batch"
    assert pod["spec"]["priority"] == 5000
    assert pod["spec"]["schedulerName"] == "koord-scheduler"
    assert resources(pod) == {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}


@pytest.mark.story
def test_priority_classes_are_there(node: RealNode) -> None:
    rows = [line.split() for line in node.kubectl("get", "priorityclass").splitlines() if line.startswith("koord-")]

    assert [row[:3] for row in rows] == [
        ["koord-batch", "5000", "false"],
        ["koord-free", "3000", "false"],
        ["koord-mid", "7000", "false"],
        ["koord-prod", "9000", "false"],
    ]


@pytest.mark.story
def test_the_node_offers_batch_resources(node: RealNode) -> None:
    """What the guide's step "Check Node Resources" prints."""

    def offered() -> Json:
        status = node.get(f"/api/v1/nodes/{node.name}")["status"]
        return {key: status["allocatable"].get(f"kubernetes.io/batch-{key}") for key in ("cpu", "memory")}

    node.wait(lambda: all(offered().values()), "batch resources on the node")

    assert "kubernetes.io/batch-cpu" in node.kubectl("describe", "node", node.name)


@pytest.mark.story
def test_the_first_job_comes_out_as_the_guide_shows_and_completes(node: RealNode) -> None:
    job = (GUIDE / "batch-job.yaml").read_text()
    node.apply(job if NIGHTLY else job.replace("range(60)", "range(3)"))
    node.wait(lambda: pods_of(node, "data-processing-job"), "its pod")
    (pod,) = pods_of(node, "data-processing-job")

    assert_batch(pod, "2k", "4Gi")
    complete(node, "data-processing-job")
    assert node.kubectl("logs", "-n", DEMO, "job/data-processing-job").endswith("Job completed!\n")


def test_a_pod_that_says_all_itself_runs_as_it_is_written(node: RealNode) -> None:
    job = (GUIDE / "manual-batch-job.yaml").read_text()
    node.apply(job if NIGHTLY else job.replace("sleep(30)", "sleep(2)"))
    node.wait(lambda: pods_of(node, "manual-batch-job"), "its pod")
    (pod,) = pods_of(node, "manual-batch-job")

    assert resources(pod) == {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "2Gi"}
    assert "koordinator.sh/mutated" not in pod["metadata"]["labels"]
    complete(node, "manual-batch-job")


def test_a_namespace_without_the_label_stays_untouched(node: RealNode) -> None:
    plain = node.namespace("plain")
    job = printed("batch-job")
    job["metadata"]["namespace"] = plain
    node.apply(yaml.safe_dump(job), plain)
    node.wait(lambda: pods_of(node, "data-processing-job", plain), "its pod")
    (pod,) = pods_of(node, "data-processing-job", plain)

    assert resources(pod) == {"cpu": "2", "memory": "4Gi"}
    assert not {label for label in pod["metadata"]["labels"] if label.startswith("koordinator.sh/")}
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    assert "priorityClassName" not in pod["spec"]
    node.kubectl("delete", "namespace", plain, "--wait=false")


def test_a_job_that_retries_completes_after_two_evictions(node: RealNode) -> None:
    """The third pod's work ends; the two before it are evicted while they work: by an admin, as a drain does."""
    node.apply(yaml.safe_dump(with_image(printed("resilient-batch-job"), "sleep", "10")))
    evicted: set[str] = set()

    def evict_twice() -> None:
        for pod in pods_of(node, "resilient-batch-job"):
            name, running = pod["metadata"]["name"], pod["status"]["phase"] == "Running"
            if running and name not in evicted and len(evicted) < 2:
                evicted.add(name)
                body = {"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 0}}
                node.post(f"/api/v1/namespaces/{DEMO}/pods/{name}/eviction", body)

    complete(node, "resilient-batch-job", look=evict_twice)

    assert len(evicted) == 2


def test_the_pipeline_never_runs_more_than_two_at_once(node: RealNode) -> None:
    node.apply(yaml.safe_dump(with_image(printed("data-pipeline"), "sleep", "2", cpu="1", memory="2Gi")))
    most = 0

    def count() -> None:
        nonlocal most
        most = max(most, sum(pod["status"]["phase"] == "Running" for pod in pods_of(node, "data-pipeline")))

    complete(node, "data-pipeline", look=count)

    assert most == 2
    assert len(pods_of(node, "data-pipeline")) == 5
    for pod in pods_of(node, "data-pipeline"):
        assert_batch(pod, "1k", "2Gi")


def test_the_schedule_of_the_cron_job_fires_once_at_two_in_the_morning(node: RealNode) -> None:
    """By its status the controller ran it more than a day ago, so that a two o'clock has passed since."""
    node.apply(yaml.safe_dump(with_image(printed("nightly-report"), "sleep", "1")))
    ran = (datetime.now(UTC) - timedelta(hours=26)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = json.dumps({"status": {"lastScheduleTime": ran}})
    node.kubectl("patch", "cronjob", "nightly-report", "-n", DEMO, "--subresource=status", "--type=merge", "-p", status)

    def jobs() -> list[str]:
        found = node.get(f"/apis/batch/v1/namespaces/{DEMO}/jobs")["items"]
        return [one["metadata"]["name"] for one in found if one["metadata"].get("ownerReferences")]

    node.wait(jobs, "the schedule fires")
    (job,) = jobs()
    complete(node, job)
    (pod,) = pods_of(node, job)

    assert time.localtime(int(job.removeprefix("nightly-report-")) * 60)[3:5] == (2, 0)
    assert jobs() == [job]
    assert_batch(pod, "2k", "4Gi")


def test_a_job_with_checkpoints_loses_at_most_a_step_with_each_eviction(node: RealNode, tmp_path: Path) -> None:
    """The repository's own example, with fewer steps; its claim gets a folder of this machine."""
    steps, most_evicted = 9, 2
    (folder := tmp_path / "checkpoints").mkdir()
    result = folder / "result"
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "checkpoints"},
        "spec": {
            "capacity": {"storage": "16Mi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(folder)},
            "claimRef": {"namespace": DEMO, "name": "checkpoints"},
        },
    }
    claim, job = yaml.safe_load_all((EXAMPLES / "checkpointed-job.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container |= {"image": images.BUSYBOX, "env": [{"name": "STEPS", "value": str(steps)}]}
    node.apply(yaml.safe_dump_all([volume, claim | {"spec": claim["spec"] | {"storageClassName": ""}}, job]))
    evicted: list[str] = []

    def evict_while_it_works() -> None:
        done = [line.split()[0] for line in result.read_text().splitlines()] if result.exists() else []
        if done and done.count(done[-1]) >= 3 and done[-1] not in evicted and len(evicted) < most_evicted:
            evicted.append(done[-1])
            body = {"metadata": {"name": done[-1]}}
            node.post(f"/api/v1/namespaces/{DEMO}/pods/{done[-1]}/eviction", body)

    complete(node, "checkpointed-job", look=evict_while_it_works)
    node.kubectl("delete", "persistentvolume", "checkpoints", "--wait=false")
    done = [int(line.split()[1]) for line in result.read_text().splitlines()]

    assert len(evicted) == most_evicted
    assert sorted(set(done)) == list(range(1, steps + 1))
    assert len(done) <= steps + most_evicted
