"""On a full node no part takes another's place, by the chart's pods and a real kube-scheduler."""

from collections.abc import Iterator

import pytest

from slacktide.schemas.units import cpu_milli
from testbed.brokers import free_port, running
from testbed.cluster.api_server import ApiServer, Json
from testbed.cluster.helm import rendered
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.programs import Program, answers, unverified
from testbed.rungs import built_program

pytestmark = pytest.mark.cluster
PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
VALUES = {"console": {"enabled": True}, "queue": {"enabled": True}}
KAFKA = {"evaluation": {"embedded": True}, "production": {"bootstrap": "kafka.kafka.svc:9093"}}


def asked_milli(spec: Json) -> int:
    return sum(cpu_milli(one["resources"]["requests"]["cpu"]) for one in spec["containers"])


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with running(ApiServer) as api:
        api.kubectl("create", "namespace", SYSTEM)
        scheduler, port = Program("kube-scheduler", api.folder / "kube-scheduler.log"), free_port()
        where = [f"--kubeconfig={api.kubeconfig}", "--bind-address=127.0.0.1", f"--secure-port={port}"]
        ready = f"https://127.0.0.1:{port}/readyz"
        command = [str(built_program("kube-scheduler")), *where, "--leader-elect=false"]
        scheduler.start(command, lambda: answers(ready, unverified()))
        try:
            yield api
        finally:
            scheduler.stop()


def pod(server: ApiServer, name: str, spec: Json, node: str | None = None) -> str:
    """A pod that asks for what a part's asks for, of its class."""
    containers = [{"name": one["name"], "image": "none", "resources": one["resources"]} for one in spec["containers"]]
    classed = {key: spec[key] for key in ("priorityClassName",) if key in spec}
    server.pod(SYSTEM, name, node=node, spec={"containers": containers, **classed})
    return name


def goes(server: ApiServer, name: str) -> bool:
    """Whether it was preempted: no kubelet ends it here."""
    return "deletionTimestamp" in server.get(f"{PODS}/{name}")["metadata"]


def placed(server: ApiServer, name: str) -> bool:
    return bool(server.get(f"{PODS}/{name}")["spec"].get("nodeName"))


def found_no_place(server: ApiServer, name: str) -> bool:
    conditions = server.get(f"{PODS}/{name}")["status"].get("conditions", [])
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


@pytest.mark.parametrize("kafka", KAFKA.values(), ids=KAFKA)
def test_a_stream_of_three_replicas_and_a_further_pod_of_any_part_end_none_of_the_others(
    server: ApiServer, kafka: Json
) -> None:
    parts = {
        each["metadata"]["name"]: (each["spec"].get("replicas", 1), each["spec"]["template"]["spec"])
        for each in rendered(VALUES | {"kafka": kafka})
        if each["kind"] in {"Deployment", "StatefulSet", "DaemonSet"}
    }
    count, stream = parts["slacktide-stream"]
    whole = sum(count * asked_milli(spec) for count, spec in parts.values()) + asked_milli(stream)
    resources = {"cpu": f"{whole}m", "memory": "64Gi", "pods": "110"}
    node = server.node(status={"capacity": resources, "allocatable": resources})
    server.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": None}})  # a new one is not ready, and nobody looks
    running_pods = [
        pod(server, f"{name}-{number}", spec, node) for name, (count, spec) in parts.items() for number in range(count)
    ]
    other = pod(server, "other", {"containers": stream["containers"]}, node)
    scaled = [pod(server, f"slacktide-stream-{number}", stream) for number in range(count, 3)]
    server.wait(lambda: goes(server, other), "a pod without a class makes room for a part")
    server.delete(f"{PODS}/{other}")
    server.wait(lambda: any(placed(server, one) for one in scaled), "one is placed")

    waiting = [one for one in scaled if not placed(server, one)]
    waiting += [pod(server, f"{name}-surge", spec) for name, (_, spec) in parts.items()]
    for one in waiting:
        server.wait(lambda one=one: found_no_place(server, one), f"{one} found no place")
    assert [one for one in running_pods if goes(server, one)] == []
    assert {"slacktide-console-0", "slacktide-agent-0"} <= set(running_pods)
    assert ("slacktide-kafka-0" in running_pods) is ("embedded" in kafka)
