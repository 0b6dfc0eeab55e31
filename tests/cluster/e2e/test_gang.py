"""Gangs on a real node: an indexed Job whose pods start together, and one that is too large and says so."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from slacktide.streams.decisions.gang.membership import LEAST, NAME
from testbed.cluster import images
from testbed.cluster.api_server import Json
from testbed.cluster.installed import Installed
from testbed.cluster.own_scheduler import free_milli, own_scheduler, with_option

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]
PODS = 3


@pytest.fixture
def gangs(slacktide: Installed, tmp_path: Path) -> Iterator[None]:
    with with_option(slacktide, "webhook", "--gangs"), own_scheduler(slacktide, tmp_path, "gangs"):
        yield


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

    node.post(jobs, job("large", f"{free_milli(slacktide) // 2 - 1}m"))

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
