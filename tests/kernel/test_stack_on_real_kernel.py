"""The whole stack on a real kernel: a busy best-effort process is held by a decision that went through the log."""

import json
import os
from pathlib import Path

import pytest

from kernel.groups import Groups
from slacktide.agents.node.cgroup import CgroupKernel
from testbed.one_machine import Up, eventually, policy

NODE = "node-1"
SERVICE, BATCH = "6a0e-11aa", "6a0e-11bb"
READY_S = 90.0
"""User-mode Linux has one CPU, which the test shares with all that it starts."""


def inventory() -> dict:
    """This machine with a service and a batch pod, as kubectl prints them."""
    amounts = {"cpu": str(os.cpu_count()), "memory": "1Gi"}

    def pod(name: str, uid: str, qos: str, kube_qos: str, requests: dict[str, str]) -> dict:
        return {
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": uid, "labels": {"koordinator.sh/qosClass": qos}},
            "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": {"requests": requests}}]},
            "status": {"phase": "Running", "qosClass": kube_qos},
        }

    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {"kind": "Node", "metadata": {"name": NODE}, "status": {"capacity": amounts, "allocatable": amounts}},
            pod("service", SERVICE, "LS", "Burstable", {"cpu": "500m"}),
            pod("batch", BATCH, "BE", "BestEffort", {"kubernetes.io/batch-cpu": "1000"}),
        ],
    }


@pytest.mark.timeout(300)
def test_up_holds_a_busy_best_effort_process(groups: Groups, kernel: CgroupKernel, tmp_path: Path) -> None:
    groups.weigh("100")  # the stack runs beside it, at times on the one CPU of user-mode Linux
    groups.add_pod("burstable", SERVICE)
    groups.start(groups.add_pod("besteffort", BATCH))
    files = {"inventory": inventory(), "policy": policy(cpuSuppressThresholdPercent=50)}
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(json.dumps(content))
    given = [part for name in files for part in (f"--{name}", str(tmp_path / f"{name}.yaml"))]
    assert kernel.limits().be_cfs_quota_us is None

    with Up(tmp_path, "--node-name", NODE, "--kubepods", groups.kubepods, *given, "--restore-on-exit") as up:
        up.wait_logged("first applied decision", within_s=READY_S)
        up.wait_logged("by the stream", within_s=READY_S)
        held_us = eventually(lambda: kernel.limits().be_cfs_quota_us, READY_S)
        assert held_us is not None, up.text()
        assert 2_000 <= held_us <= 50_000 * (os.cpu_count() or 1)

        code, _ = up.stop()
        assert code == 0, up.text()
    assert kernel.limits().be_cfs_quota_us is None, "lifted at the end, as asked"
