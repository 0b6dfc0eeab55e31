"""One boot for all tests of the folder: the node with the product, and pods that it has from the start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from testbed.cluster.guest_node import GuestNode, running_guest_node

SUPPRESS = {
    "enable": True,
    "cpuSuppressPolicy": "cfsQuota",
    "cpuSuppressThresholdPercent": 80,
    "cpuSuppressMinPercent": 40,  # a container's start is best-effort, too, and slow here
    "memoryEvictThresholdPercent": 95,
}
HOARD_MIB = 240
BURST = {"policy": "auto", "cfsQuotaBurstPercent": 150, "sharePoolThresholdPercent": 100}
COLOCATION = {"enable": True, "cpuReclaimThresholdPercent": 600, "memoryReclaimThresholdPercent": 200}


def set_policy(node: GuestNode, *, idle: bool = False, **threshold: object) -> None:
    """The policy of all tests, with further fields of the threshold's strategy; ``idle``: schedIdle is 1."""
    qos = {"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": True, "schedIdle": int(idle)}}}
    strategies = {"threshold": SUPPRESS | threshold, "burst": BURST, "qos": qos}
    node.set_policy(colocation=COLOCATION, **{key: {"clusterStrategy": one} for key, one in strategies.items()})


@dataclass(frozen=True, slots=True)
class Pods:
    """Uids of pods in a namespace: throttled at its limit; alone on a CPU; two of best effort, with work and memory."""

    namespace: str
    web: str
    pinned: str
    batch: str
    hoard: str


@pytest.fixture(scope="session")
def node() -> Iterator[GuestNode]:
    """The node, Ready; the agent starts meanwhile."""
    with running_guest_node() as node:
        yield node


@pytest.fixture(scope="session")
def pods(node: GuestNode) -> Pods:
    """All of them run."""
    set_policy(node)
    here = node.namespace()
    limit = {"cpu": "200m", "memory": "64Mi"}
    whole = {"cpu": "1", "memory": "64Mi"}
    web = node.run(here, "web", "burn", "spin", "1", resources={"requests": {"cpu": "100m"}, "limits": limit})
    pinned = node.run(here, "pinned", "burn", "serve", "10", "1000", resources={"requests": whole, "limits": whole})
    batch = node.best_effort(here, "batch", "burn", "spin", "1", cpu_milli=500, mem_mib=256)
    hoard = node.best_effort(here, "hoard", "burn", "fill", str(HOARD_MIB), cpu_milli=100, mem_mib=2 * HOARD_MIB)
    node.wait(lambda: len(node.containers(here)) == 4, "the pods run")
    return Pods(here, web, pinned, batch, hoard)
