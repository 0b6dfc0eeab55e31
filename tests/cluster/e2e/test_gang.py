"""Gangs on a real node: an indexed Job whose pods start together, and one that is too large and says so."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slacktide.schemas.units import cpu_milli
from slacktide.streams.decisions.gang.membership import LEAST, NAME
from slacktide.streams.decisions.load.load_aware_estimator import ANNOTATION
from testbed.brokers import free_port
from testbed.cluster import images
from testbed.cluster.api_server import Json
from testbed.cluster.installed import OWN, Installed
from testbed.cluster.programs import Program, answers
from testbed.cluster.scheduler_rig import ACCOUNT, COMPONENT, Scheduling

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]
WEBHOOK = f"/apis/apps/v1/namespaces/{OWN}/deployments/slacktide-webhook"
PODS = 3
SLACKTIDE = str(Path(sys.executable).with_name("slacktide"))


@pytest.fixture
def gangs(slacktide: Installed, tmp_path: Path) -> Iterator[None]:
    """The components of the scheduler and of gangs; kube-scheduler and extender run beside the node."""
    node = slacktide.node
    for name in ("service-account", "rbac", "configuration", "cores-policy"):
        node.apply(COMPONENT / f"{name}.yaml")
    for each in yaml.safe_load_all((COMPONENT / "deployment.yaml").read_text()):
        if each["kind"] == "Deployment":
            node.apply(yaml.safe_dump({**each, "spec": {**each["spec"], "replicas": 0}}))
    for name in ("rbac", "pod-policy"):
        node.apply(COMPONENT.parent / f"gangs/{name}.yaml")
    [webhook] = node.get(WEBHOOK)["spec"]["template"]["spec"]["containers"]
    _with_args(slacktide, [*webhook["args"], "--gangs"])
    # Other tests fill the machine with load, which must not keep pods away here.
    annotation = json.dumps({"usageThresholds": {"cpu": 0, "memory": 0}})
    node.kubectl("annotate", "node", node.name, f"{ANNOTATION}={annotation}", "--overwrite")
    scheduling, extender = Scheduling(node), Program("slacktide scheduler", tmp_path / "scheduler.log")
    given = {
        "bootstrap": slacktide.kafka.bootstrap,
        "kubeconfig": scheduling.account.kubeconfig,
        "port": scheduling.port,
        "metrics-port": (port := free_port()),
    }
    command = [SLACKTIDE, "scheduler", "--gangs", *(f"--{name}={value}" for name, value in given.items())]
    node.scheduler.stop()  # it places pods of every scheduler's name, and asks nobody
    try:
        extender.start(command, lambda: answers(f"http://127.0.0.1:{port}/ready"))
        scheduling.start()
        yield
    finally:
        scheduling.program.stop()
        extender.stop()
        node.start()
        _with_args(slacktide, webhook["args"])
        node.kubectl("annotate", "node", node.name, f"{ANNOTATION}-")
        node.kubectl("delete", "clusterrolebinding", ACCOUNT, f"{ACCOUNT}-gangs")


def _with_args(slacktide: Installed, args: list[str]) -> None:
    patch = [{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}]
    slacktide.node.kubectl("patch", "deployment/slacktide-webhook", "-n", OWN, "--type=json", "-p", json.dumps(patch))
    slacktide.ready("deployment/slacktide-webhook")


def job(name: str, cpu: str) -> Json:
    container = {"name": "main", "image": images.BUSYBOX, "command": ["sleep", "1"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": PODS,
            "parallelism": PODS,
            "completionMode": "Indexed",
            "template": {
                "metadata": {"annotations": {NAME: name, LEAST: str(PODS)}},
                "spec": {
                    "schedulerName": "koord-scheduler",
                    "restartPolicy": "Never",
                    "containers": [{**container, "resources": {"requests": {"cpu": cpu, "memory": "8Mi"}}}],
                },
            },
        },
    }


@pytest.mark.usefixtures("gangs")
def test_a_job_whose_pods_start_together_completes_and_one_that_is_too_large_says_why(slacktide: Installed) -> None:
    node = slacktide.node
    space = node.namespace("gang")
    jobs = f"/apis/batch/v1/namespaces/{space}/jobs"
    node.post(jobs, job("small", "10m"))
    node.wait(lambda: node.get(f"{jobs}/small")["status"].get("succeeded") == PODS, "all pods of the job succeed")
    gates = [pod["spec"].get("schedulingGates") for pod in node.pods(space, "job-name=small")]
    assert gates == [None] * PODS

    free = cpu_milli(node.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"]["cpu"]) - sum(
        cpu_milli(container["resources"]["requests"]["cpu"])
        for pod in node.get("/api/v1/pods")["items"]
        if pod["status"]["phase"] == "Running"
        for container in pod["spec"]["containers"]
        if "cpu" in container.get("resources", {}).get("requests", {})
    )
    node.post(jobs, job("large", f"{free // 2 - 1}m"))

    said: list[str] = []

    def is_explained() -> bool:
        pods = [pod["metadata"]["name"] for pod in node.pods(space, "job-name=large")]
        with contextlib.suppress(AssertionError):  # nothing is published of them yet
            said[:] = [" ".join(slacktide.explain("pod", f"{space}/{name}").split()) for name in pods]
        why = f"places for 2 of {PODS} pods of gang {space}/large"
        return len(said) == PODS and all("gang_no_room" in one and why in one for one in said)

    with contextlib.suppress(TimeoutError):
        node.wait(is_explained, "both the pod that asks and those that are gated say why")
    assert is_explained(), "\n".join(said)
    large = [pod["spec"] for pod in node.pods(space, "job-name=large")]
    assert not [one for one in large if one.get("nodeName")]
    assert len([one for one in large if one.get("schedulingGates")]) == PODS - 1, "one asks for all"
    node.kubectl("delete", "namespace", space, "--wait=false")
