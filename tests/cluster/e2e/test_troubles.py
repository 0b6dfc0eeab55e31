"""The guide's troubleshooting, on a real node: ``slacktide explain`` says why, and so do Kubernetes' own Events."""

import json
from collections.abc import Iterator

import pytest

from testbed.cluster import batch
from testbed.cluster.installed import Installed

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]

BATCH_CPU = "kubernetes.io/batch-cpu"


@pytest.fixture
def here(slacktide: Installed) -> Iterator[str]:
    batch.set_policy(slacktide.node)
    namespace = slacktide.node.namespace("trouble")
    yield namespace
    slacktide.node.kubectl("delete", "namespace", namespace, "--wait=false")
    batch.set_policy(slacktide.node)


def test_a_pod_that_waits_for_want_of_batch_resources(slacktide: Installed, here: str) -> None:
    """Issue 1 of the guide."""
    node = slacktide.node
    batch.pod(node, here, "huge", "burn", "spin", "1", cpu_milli=1_000_000)
    about = f"/apis/events.k8s.io/v1/namespaces/{here}/events"
    node.wait(lambda: "FailedScheduling" in json.dumps(node.get(about)), "the scheduler's Event")
    notes = [each["note"] for each in node.get(about)["items"] if each["reason"] == "FailedScheduling"]
    written = node.kubectl("get", "pod", "huge", "-n", here, "-o", "yaml")
    said = slacktide.explain("pod", f"{here}/huge", "--file", "-", given=written)

    assert f"Insufficient {BATCH_CPU}" in notes[0]
    assert "1,000,000m" in said


def test_a_node_without_batch_resources(slacktide: Installed, here: str) -> None:
    """Issue 3 of the guide: here the operator has switched colocation off."""
    node = slacktide.node
    batch.set_policy(node, colocation=False)
    path = f"/api/v1/nodes/{node.name}"
    node.wait(
        lambda: node.get(path)["status"]["allocatable"].get(BATCH_CPU, "0") == "0", "none is offered any more", 150
    )

    assert "batch resources are disabled by policy" in slacktide.explain("node", node.name)
