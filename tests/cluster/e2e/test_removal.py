"""What is left on a real node once Slacktide is removed from the cluster: nothing. A rollout lifts nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import batch, images
from testbed.cluster.installed import OWN, Installed
from testbed.cluster.manifests import MANIFESTS

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]

BATCH_CPU = "kubernetes.io/batch-cpu"
UNLIMITED_BYTES = 1 << 62
"""cgroup v1 rounds what is unlimited down to whole pages."""


class HeldPod:
    """A batch pod that the agent holds."""

    def __init__(self, slacktide: Installed) -> None:
        self.slacktide, node = slacktide, slacktide.node
        batch.set_policy(node, cpuSuppressPolicy="cfsQuota", cpuSuppressThresholdPercent=10)
        self.namespace = node.namespace("removal")
        node.wait(lambda: self.sold, "batch resources")
        batch.pod(node, self.namespace, "held", "burn", "spin", "1")
        node.wait(lambda: node.pods(self.namespace)[0]["status"]["phase"] == "Running", "the pod runs")
        [self.pod] = node.pods(self.namespace)
        node.wait(lambda: self.held, "the pod is held")

    @property
    def sold(self) -> bool:
        """Whether the node shows batch resources."""
        return BATCH_CPU in self.slacktide.node.get(f"/api/v1/nodes/{self.slacktide.node.name}")["status"]["capacity"]

    @property
    def held(self) -> bool:
        """Whether the tier and the pod have each of their limits."""
        return self.slacktide.node.best_effort_quota_us is not None and all(self._own())

    @property
    def free(self) -> bool:
        """Whether none of them is left."""
        return self.slacktide.node.best_effort_quota_us is None and not any(self._own())

    def _own(self) -> tuple[bool, bool]:
        node = self.slacktide.node
        quota_us = int((node.group("cpu", self.pod) / "cpu.cfs_quota_us").read_text())
        limit_bytes = int((node.group("memory", self.pod) / "memory.limit_in_bytes").read_text())
        return quota_us > 0, limit_bytes < UNLIMITED_BYTES


@pytest.fixture
def pod(slacktide: Installed) -> Iterator[HeldPod]:
    held = HeldPod(slacktide)
    yield held
    slacktide.node.kubectl("delete", "namespace", held.namespace, "--wait=false")
    slacktide.start()
    batch.set_policy(slacktide.node)


def test_a_rollout_lifts_nothing(slacktide: Installed, pod: HeldPod) -> None:
    node, over, seen = slacktide.node, threading.Event(), []

    def look() -> None:
        while not over.wait(0.1):
            seen.append((node.best_effort_quota_us is not None, pod._own(), pod.sold))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        node.kubectl("rollout", "restart", "daemonset/slacktide-agent", "-n", OWN)
        slacktide.ready("daemonset/slacktide-agent")
        # Two bridges do not fit on the network of one host: the next one comes after it.
        node.kubectl("delete", "pod", "-n", OWN, "-l", "app.kubernetes.io/component=bridge")
        slacktide.ready("deployment/slacktide-bridge")
    finally:
        over.set()
        looking.join()

    assert set(seen) == {(True, (True, True), True)}


def test_without_its_workloads_nothing_is_held_and_nothing_sold(slacktide: Installed, pod: HeldPod) -> None:
    workloads = ("daemonset/slacktide-agent", "deployment/slacktide-bridge")
    slacktide.node.kubectl("delete", "-n", OWN, *workloads, "--cascade=foreground")

    assert pod.free
    assert not pod.sold
    state = Path(slacktide.node.folder, "agent")
    assert [one.name for one in state.iterdir()] == ["lock"]


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
