"""On a full real node more replicas of a part take the place of none of the others: they wait, and say why."""

import json
from collections.abc import Iterator

import pytest

from slacktide.schemas.units import cpu_milli
from testbed.cluster import images
from testbed.cluster.api_server import Json
from testbed.cluster.helm import rendered
from testbed.cluster.installed import OWN, Installed

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]
STREAM = f"/apis/apps/v1/namespaces/{OWN}/deployments/slacktide-stream"
REPLICAS = 3


def asked_milli(spec: Json) -> int:
    requests = (one.get("resources", {}).get("requests", {}) for one in spec["containers"])
    return sum(cpu_milli(each["cpu"]) for each in requests if "cpu" in each)


@pytest.fixture
def stream(slacktide: Installed) -> Iterator[Json]:
    """The pod of the stream as one that may run several times on one host's network, without ports of its own."""
    node = slacktide.node
    [container] = node.get(STREAM)["spec"]["template"]["spec"]["containers"]
    at = "/spec/template/spec/containers/0"
    without = [{"op": "remove", "path": f"{at}/{key}"} for key in ("ports", "livenessProbe", "readinessProbe")]
    args = {"op": "replace", "path": f"{at}/args", "value": [*container["args"], "--metrics-port=0"]}
    node.kubectl("patch", "deployment/slacktide-stream", "-n", OWN, "--type=json", "-p", json.dumps([*without, args]))
    slacktide.wait_ready()
    yield node.get(STREAM)["spec"]["template"]["spec"]
    node.kubectl("delete", "pod", "broker", "-n", OWN, "--ignore-not-found")
    node.kubectl("scale", "deployment/slacktide-stream", "-n", OWN, "--replicas=1")  # which manifests here leave open
    slacktide.start()


def test_the_stream_scaled_to_three_takes_an_ordinary_pods_place_and_ends_no_part(
    slacktide: Installed, stream: Json
) -> None:
    node, namespace = slacktide.node, slacktide.node.namespace("full")
    [kafka] = [one for one in rendered({"kafka": {"embedded": True}}) if one["kind"] == "StatefulSet"]
    broker_class = kafka["spec"]["template"]["spec"]["priorityClassName"]
    placed = [one["spec"] for one in node.get("/api/v1/pods")["items"] if one["status"]["phase"] == "Running"]
    capacity_milli = cpu_milli(node.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"]["cpu"])
    free_milli = capacity_milli - sum(map(asked_milli, placed))

    def pod(where: str, name: str, milli: int, **more: str) -> None:
        resources = {"requests": {"cpu": f"{milli}m"}}
        container = {"name": "main", "image": images.PAUSE, "resources": resources}
        node.pod(where, name, node=None, spec={"containers": [container], "terminationGracePeriodSeconds": 1, **more})
        node.wait(lambda: running()[name], f"{name} runs")

    def running() -> dict[str, str]:
        """Uids of pods that run and stay, by name."""
        found = [*node.pods(OWN), *node.pods(namespace)]
        stay = (one for one in found if "deletionTimestamp" not in one["metadata"])
        names = {one["metadata"]["name"]: one["metadata"]["uid"] for one in stay if one["status"]["phase"] == "Running"}
        return {"ordinary": "", "broker": "", **names}

    ordinary_milli = asked_milli(stream)
    pod(namespace, "ordinary", ordinary_milli)
    pod(OWN, "broker", free_milli - ordinary_milli, priorityClassName=broker_class)
    before = running()
    node.kubectl("scale", "deployment/slacktide-stream", "-n", OWN, f"--replicas={REPLICAS}")

    def refused() -> list[Json]:
        waiting = [one for one in node.pods(OWN) if one["status"]["phase"] == "Pending"]
        conditions = [each for one in waiting for each in one["status"].get("conditions", [])]
        return [each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"]

    node.wait(lambda: len(running()) == len(before) + 1, "a second replica runs")
    node.wait(lambda: len(refused()) == 1, "the third found no place")
    assert "Insufficient cpu" in refused()[0]["message"]
    assert running()["ordinary"] == ""
    assert running().items() >= {name: uid for name, uid in before.items() if name != "ordinary"}.items()
    node.kubectl("delete", "namespace", namespace, "--wait=false")
