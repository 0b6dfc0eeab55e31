"""The node of the test bed is a real one: pods are processes of this machine, in the kubelet's groups."""

import json

import pytest

from testbed.cluster import images
from testbed.cluster.real_node import RealNode

pytestmark = pytest.mark.realnode

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  schedulerName: koord-scheduler
  containers:
  - name: main
    image: {image}
    command: {command}
"""


@pytest.fixture
def here(real_node: RealNode) -> str:
    return real_node.namespace()


def run(node: RealNode, namespace: str, name: str, image: str, *command: str) -> None:
    node.apply(POD.format(name=name, image=image, command=json.dumps(command)), namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    node.wait(lambda: node.get(path)["status"]["phase"] in {"Running", "Succeeded"}, f"{name} runs")


@pytest.mark.story
def test_a_pod_runs_where_the_kubelet_puts_it(real_node: RealNode, here: str) -> None:
    run(real_node, here, "sleeps", images.BUSYBOX, "sleep", "3600")
    (pod,) = real_node.pods(here)

    assert pod["spec"]["nodeName"] == real_node.name
    assert "kubepods/besteffort" in str(real_node.group("cpu", pod))
    assert (real_node.group("cpu", pod) / "cpu.shares").read_text() == "2\n"


def test_the_guide_s_python_is_one(real_node: RealNode, here: str) -> None:
    run(real_node, here, "prints", images.PYTHON, "python", "-c", "import json, ssl, random; print('it works')")

    real_node.wait(lambda: "it works" in real_node.kubectl("logs", "prints", "-n", here), "its output")


def test_a_kubelet_started_again_leaves_pods_running(real_node: RealNode, here: str) -> None:
    run(real_node, here, "sleeps", images.BUSYBOX, "sleep", "3600")
    (before,) = real_node.pods(here)
    real_node.kubelet.stop()
    real_node.start_kubelet()
    (after,) = real_node.pods(here)

    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == before["status"]["containerStatuses"][0]["containerID"]
    )
