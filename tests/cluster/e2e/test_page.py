"""The page from an empty cluster to the first suppressed pod, on a real node: its commands as they are written."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from testbed.cluster import batch, images
from testbed.cluster.follow import checkout, follow
from testbed.cluster.installed import Installed
from testbed.cluster.real_node import RealNode
from testbed.cluster.told import Command, commands
from testbed.cluster.traces import CGROUPS

pytestmark = [pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]

POLICY = "deploy/kubernetes/policy/slo-controller-config.yaml"
MADE = (
    ("namespace", "batch-demo"),
    ("configmap", "slo-controller-config", "-n", "koordinator-system"),
    ("deployment", "busy-service"),
    ("clustercolocationprofile", "batch-workload-profile"),
)
HELD_BACK_US, PERIOD_US = 30_000, 100_000


def forget(node: RealNode) -> None:
    """Remove what the page makes, or another test made under its names; returns when it is gone."""
    for made in MADE:
        node.kubectl("delete", *made, "--ignore-not-found")


@pytest.fixture
def node(slacktide: Installed) -> Iterator[RealNode]:
    """The cluster as the page's first step leaves it; the page's image is what this machine has."""
    node = slacktide.node
    tagged = node.ctr("images", "tag", "--force", images.BUSYBOX, "docker.io/library/busybox:1.36")
    assert tagged is not None, "containerd refused the tag"
    forget(node)
    yield node
    forget(node)
    batch.set_policy(node)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The repository's root, with a policy so generous that a CPU of batch work fits a machine of two."""
    root = checkout(tmp_path)
    config = yaml.safe_load((root / POLICY).read_text())
    room = {"enable": True, "cpuReclaimThresholdPercent": 600, "memoryReclaimThresholdPercent": 200}
    config["data"]["colocation-config"] = json.dumps(room)
    (root / POLICY).write_text(yaml.safe_dump(config))
    return root


def since_the_first_that_needs_a_node() -> list[Command]:
    """From the page's first wait for pods to its last look at them."""
    asked = commands("kubernetes.md")
    marked = [at for at, command in enumerate(asked) if command.needs_a_node]
    return [
        replace(command, shown=("...", *command.shown)) if "policy lint" in command.text else command  # of this policy
        for command in asked[marked[0] : marked[-1] + 1]
    ]


def limit_us() -> int:
    """The CPU time that all best-effort pods may use in a period; a large number where there is no limit."""
    told = int((CGROUPS / "cpu/kubepods/besteffort/cpu.cfs_quota_us").read_text())
    return told if told >= 0 else PERIOD_US * 1000


@pytest.mark.story
def test_to_the_first_suppressed_pod(node: RealNode, root: Path) -> None:
    """That it is given back is shown where nothing else runs on the machine."""
    follow(node, root, since_the_first_that_needs_a_node())
    node.wait(lambda: limit_us() <= HELD_BACK_US, "best-effort pods are held back")
