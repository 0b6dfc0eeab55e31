"""What goes away comes back, and nobody's work is lost meanwhile: kubelet, agent, API server, Kafka, webhook."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from testbed.cluster import batch
from testbed.cluster.api_server import Json, RefusedError
from testbed.cluster.installed import FULL, OWN, Installed
from testbed.cluster.real_node import RealNode

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]

OUTAGE_S = 60.0 if FULL else 8.0
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


@pytest.fixture
def node(slacktide: Installed) -> RealNode:
    return slacktide.node


@pytest.fixture
def here(node: RealNode) -> Iterator[str]:
    """A namespace with two best-effort pods at work."""
    batch.set_policy(node)
    namespace = node.namespace("outage")
    for name in ("one", "two"):
        batch.pod(node, namespace, name, "burn", "spin", "1")
    node.wait(lambda: phases(node, namespace) == ["Running"] * 2, "both pods run")
    yield namespace
    node.kubectl("delete", "namespace", namespace, "--wait=false")


def phases(node: RealNode, namespace: str) -> list[str]:
    return [pod["status"]["phase"] for pod in node.pods(namespace)]


def work(node: RealNode, namespace: str) -> list[tuple[str, int]]:
    """Which containers there are, and how often each was started again."""
    found: list[Json] = [each for pod in node.pods(namespace) for each in pod["status"]["containerStatuses"]]
    return [(each["containerID"], each["restartCount"]) for each in found]


def agent_stops(node: RealNode) -> None:
    """No node matches what it asks for: the agent's pod goes, and its DaemonSet stays."""
    only = {"spec": {"template": {"spec": {"nodeSelector": {"slacktide.io/nowhere": "true"}}}}}
    node.patch(f"/apis/apps/v1/namespaces/{OWN}/daemonsets/slacktide-agent", only)
    component = "app.kubernetes.io/component=agent"
    node.wait(lambda: not node.pods(OWN, component), "the agent has gone")


def agent_starts(slacktide: Installed) -> None:
    anywhere = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    slacktide.node.patch(f"/apis/apps/v1/namespaces/{OWN}/daemonsets/slacktide-agent", anywhere)
    slacktide.ready("daemonset/slacktide-agent")


def test_a_kubelet_started_again_while_the_agent_is_silent_keeps_all_pods(
    slacktide: Installed, node: RealNode, here: str
) -> None:
    """It admits running pods anew by what the node shows: never less than they ask for."""
    before = work(node, here)
    agent_stops(node)
    time.sleep(OUTAGE_S)
    node.kubelet.stop()
    node.start_kubelet()
    time.sleep(3)

    assert phases(node, here) == ["Running"] * 2
    assert work(node, here) == before
    agent_starts(slacktide)


def test_had_the_node_lost_its_batch_resources_the_same_kubelet_would_have_failed_them(
    slacktide: Installed, node: RealNode, here: str
) -> None:
    """What the plain rule does, which withdraws them from a node that is silent."""
    path = f"/apis/apps/v1/namespaces/{OWN}/deployments/slacktide-bridge"
    node.patch(path, {"spec": {"replicas": 0}})
    component = "app.kubernetes.io/component=bridge"
    node.wait(lambda: not node.pods(OWN, component), "the bridge has gone")
    gone = dict.fromkeys(BATCH, "0")
    node.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"capacity": gone, "allocatable": gone}})
    node.kubelet.stop()
    node.start_kubelet()
    node.wait(lambda: phases(node, here) == ["Failed"] * 2, "both pods fail")

    assert {pod["status"]["reason"] for pod in node.pods(here)} <= {f"OutOf{resource}" for resource in BATCH} | {
        "UnexpectedAdmissionError"
    }
    node.patch(path, {"spec": {"replicas": 1}})
    slacktide.ready("deployment/slacktide-bridge")


def test_an_agent_that_is_killed_comes_back_and_answers(slacktide: Installed, node: RealNode, here: str) -> None:
    before = work(node, here)
    (agent,) = node.pods(OWN, "app.kubernetes.io/component=agent")
    node.delete(f"/api/v1/namespaces/{OWN}/pods/{agent['metadata']['name']}")
    node.wait(lambda: agent["metadata"]["name"] not in str(node.pods(OWN)), "the killed agent has gone")
    slacktide.ready("daemonset/slacktide-agent")

    assert work(node, here) == before


def test_while_the_api_server_is_away_pods_keep_running(slacktide: Installed, node: RealNode, here: str) -> None:
    before = work(node, here)
    node.api.stop()
    time.sleep(OUTAGE_S)
    node.start()
    for deployment in ("slacktide-bridge", "slacktide-webhook"):
        slacktide.ready(f"deployment/{deployment}")

    assert work(node, here) == before
    assert node.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"][BATCH[0]] != "0"


def test_while_kafka_is_away_pods_keep_running(slacktide: Installed, node: RealNode, here: str) -> None:
    before = work(node, here)
    slacktide.kafka.stop()
    time.sleep(OUTAGE_S)
    slacktide.kafka.start()
    for workload in ("deployment/slacktide-stream", "daemonset/slacktide-agent"):
        slacktide.ready(workload)

    assert work(node, here) == before


def test_while_the_webhook_is_away_pods_are_made_as_written_and_agents_evict_nobody(
    slacktide: Installed, node: RealNode, here: str
) -> None:
    before = work(node, here)
    path = f"/apis/apps/v1/namespaces/{OWN}/deployments/slacktide-webhook"
    node.patch(path, {"spec": {"replicas": 0}})
    component = "app.kubernetes.io/component=webhook"
    node.wait(lambda: not node.pods(OWN, component), "the webhook has gone")
    (agent,) = node.pods(OWN, "app.kubernetes.io/component=agent")
    token = node.account(OWN, "slacktide-agent", pod=agent["metadata"]["name"]).token
    (one, _) = node.pods(here)
    eviction = {
        "metadata": {"name": one["metadata"]["name"]},
        "deleteOptions": {"preconditions": {"uid": one["metadata"]["uid"]}},
    }
    evict = f"/api/v1/namespaces/{here}/pods/{one['metadata']['name']}/eviction"
    with pytest.raises(RefusedError, match="failed calling webhook"):
        node.request("POST", evict, eviction, token=token)
    node.patch(path, {"spec": {"replicas": 1}})
    slacktide.ready("deployment/slacktide-webhook")

    assert work(node, here) == before
