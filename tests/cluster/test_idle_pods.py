"""A real kubelet on cgroup v1 beside idle best-effort pods, and beside an idle tier: why ``podIdle`` is what we ship.

`tests/cluster/v2` shows the idle tier on cgroup v2.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import images
from testbed.cluster.real_node import RealNode

pytestmark = pytest.mark.realnode


@pytest.fixture
def here(real_node: RealNode) -> str:
    return real_node.namespace()


@pytest.fixture
def tier(real_node: RealNode) -> Iterator[Path]:
    """The best-effort tier; afterwards it is as the kubelet made it."""
    group = real_node.best_effort("cpu")
    yield group
    (group / "cpu.idle").write_text("0")
    (group / "cpu.shares").write_text("2")
    real_node.start_kubelet()


def run(node: RealNode, namespace: str, name: str, cpu_milli: int = 0) -> Path:
    """A pod that sleeps, best-effort without a request; returns its group."""
    container = {"name": "main", "image": images.BUSYBOX, "command": ["sleep", "3600"]}
    if cpu_milli:
        container["resources"] = {"requests": {"cpu": f"{cpu_milli}m"}}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    node.apply(json.dumps(manifest), namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    node.wait(lambda: node.get(path)["status"]["phase"] == "Running", f"{name} runs")
    return node.group("cpu", node.get(path))


def read(group: Path, file: str) -> int:
    return int((group / file).read_text())


def test_a_kubelet_restarts_beside_idle_pods_and_burstable_s_shares_follow_a_new_pod(
    real_node: RealNode, here: str, tier: Path
) -> None:
    batch = run(real_node, here, "batch")
    (batch / "cpu.idle").write_text("1")
    real_node.kubelet.stop()
    real_node.start_kubelet()
    burstable = tier.parent / "burstable"
    before = read(burstable, "cpu.shares")
    run(real_node, here, "service", cpu_milli=300)

    real_node.wait(lambda: read(burstable, "cpu.shares") >= before + 300, "burstable weighs more")
    assert read(batch, "cpu.idle") == 1
    assert read(tier, "cpu.shares") == 2


def test_over_an_idle_tier_no_kubelet_starts(real_node: RealNode, here: str, tier: Path) -> None:
    """It fails to write the tier's shares, and ends."""
    run(real_node, here, "batch")
    real_node.kubelet.stop()
    (tier / "cpu.idle").write_text("1")

    with pytest.raises(RuntimeError, match=r"besteffort/cpu.shares: invalid argument"):
        real_node.start_kubelet()
