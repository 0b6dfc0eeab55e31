"""What is left on a real node once Slacktide is removed from the cluster: nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import batch, images
from testbed.cluster.held_pod import HeldPod
from testbed.cluster.installed import OWN, Installed
from testbed.cluster.manifests import MANIFESTS

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]


@pytest.fixture
def pod(slacktide: Installed) -> Iterator[HeldPod]:
    held = HeldPod(slacktide)
    yield held
    slacktide.node.kubectl("delete", "namespace", held.namespace, "--wait=false")
    slacktide.start()
    batch.set_policy(slacktide.node)


@pytest.mark.story
def test_without_its_workloads_nothing_is_held_and_nothing_sold(slacktide: Installed, pod: HeldPod) -> None:
    workloads = ("daemonset/slacktide-agent", "deployment/slacktide-bridge")
    slacktide.node.kubectl("delete", "-n", OWN, *workloads, "--cascade=foreground")

    assert pod.free
    assert not pod.sold
    assert list(Path(slacktide.node.folder, "agent").iterdir()) == []


def test_all_deleted_at_once_nothing_is_held_and_nothing_sold(slacktide: Installed, pod: HeldPod) -> None:
    """Accounts and rights are deleted before the pods; the bridge's are held until Nodes are done."""
    node = slacktide.node
    base = node.kubectl("kustomize", str(MANIFESTS / "base"))
    node.kubectl("delete", "-f", "-", "--wait=false", given=base)
    node.wait(lambda: not node.exists(f"/api/v1/namespaces/{OWN}"), "the namespace is gone")

    assert pod.free
    assert not pod.sold


def test_a_node_that_its_daemon_set_leaves_stays_held_until_it_is_restored_by_hand(
    slacktide: Installed, pod: HeldPod
) -> None:
    node = slacktide.node
    nowhere = {"spec": {"template": {"spec": {"nodeSelector": {"no": "node"}}}}}
    node.kubectl("patch", "daemonset/slacktide-agent", "-n", OWN, "-p", json.dumps(nowhere))
    node.wait(lambda: not node.pods(OWN, "app.kubernetes.io/component=agent"), "the agent has ended")
    assert pod.held

    folders = ["--cgroup-mount=/host/sys/fs/cgroup", f"--state-folder=/host{node.folder}/agent"]
    restore = ["slacktide", "agent", "restore", f"--node-name={node.name}", *folders]
    node.kubectl("debug", f"node/{node.name}", f"--image={images.SLACKTIDE}", "--profile=general", "--", *restore)

    node.wait(lambda: pod.free, "nothing is held", 180)
    node.kubectl("delete", "daemonset/slacktide-agent", "-n", OWN)
