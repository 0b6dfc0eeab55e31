"""A Reservation on a real node: its owner starts in the room that the kubelet held, and nobody else does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import images
from testbed.cluster.api_server import Json
from testbed.cluster.installed import Installed
from testbed.cluster.own_scheduler import apply_component, free_milli, own_scheduler, with_option

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
RESERVED_MILLI, REST_MILLI = 100, 50


@pytest.fixture
def reservations(slacktide: Installed, tmp_path: Path) -> Iterator[None]:
    apply_component(slacktide, "reservation-crds")
    slacktide.node.kubectl("wait", "--for=condition=Established", "crd/reservations.scheduling.koordinator.sh")
    bridge = with_option(slacktide, "bridge", f"--reservation-image={images.PAUSE}")
    with bridge, own_scheduler(slacktide, tmp_path, "reservations"):
        yield


def pod(name: str, milli: int, command: str = "sleep 600") -> Json:
    container = {
        "name": "main",
        "image": images.BUSYBOX,
        "command": ["sh", "-c", command],
        "resources": {"requests": {"cpu": f"{milli}m", "memory": "8Mi"}},
    }
    spec = {"schedulerName": "koord-scheduler", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": {**spec, "containers": [container]}}


@pytest.mark.usefixtures("reservations")
def test_the_owner_of_a_reservation_starts_on_a_node_that_is_full_for_others(slacktide: Installed) -> None:
    node = slacktide.node
    space = node.namespace("reserved")
    pods = f"/api/v1/namespaces/{space}/pods"
    template = {"metadata": {"namespace": space}, "spec": pod("x", RESERVED_MILLI)["spec"]}
    owners = [{"labelSelector": {"matchLabels": {"app": "owner"}}}]
    node.post(
        RESERVATIONS,
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": "room"},
            "spec": {"template": template, "owners": owners},
        },
    )

    def phase() -> str:
        return str(node.get(f"{RESERVATIONS}/room").get("status", {}).get("phase", ""))

    def runs(name: str) -> bool:
        return str(node.get(f"{pods}/{name}")["status"]["phase"]) == "Running"

    node.wait(lambda: phase() == "Available", "the room is held")
    [placeholder] = node.get(pods)["items"]
    node.wait(lambda: runs(placeholder["metadata"]["name"]), "the kubelet runs the pod that holds it")
    node.post(pods, pod("full", free_milli(slacktide) - REST_MILLI))
    node.wait(lambda: runs("full"), "another pod takes nearly all the rest")
    node.post(pods, pod("other", RESERVED_MILLI))

    def told() -> str:
        conditions = node.get(f"{pods}/other")["status"].get("conditions", [])
        return " ".join(one.get("message", "") for one in conditions)

    node.wait(lambda: "Insufficient cpu" in told() or "unrequested_short:cpu" in told(), "there is no room for another")
    node.post(pods, pod("owner", RESERVED_MILLI, command="true"))
    node.wait(lambda: node.get(f"{pods}/owner")["status"]["phase"] == "Succeeded", "its owner ran")
    node.wait(lambda: phase() == "Succeeded", "the Reservation was used")
    assert node.get(f"{pods}/owner")["metadata"]["annotations"].keys() >= {
        "scheduling.koordinator.sh/reservation-allocated"
    }
    assert not node.exists(f"{pods}/{placeholder['metadata']['name']}")
    node.kubectl("delete", "reservation", "room")
    node.kubectl("delete", "namespace", space, "--wait=false")
