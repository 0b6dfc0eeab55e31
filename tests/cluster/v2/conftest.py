"""One boot for all tests of the folder: the node with the product, and pods that it has from the start."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pytest

from testbed.cluster.guest_node import KUBEPODS, GuestNode, running_guest_node

SUPPRESS = {
    "enable": True,
    "cpuSuppressPolicy": "cfsQuota",
    "cpuSuppressThresholdPercent": 80,
    "cpuSuppressMinPercent": 40,  # a container's start is best-effort, too, and slow here
    "memoryEvictThresholdPercent": 95,
}
HOARD_MIB = 240
TRACING = "/sys/kernel/tracing"
BURST = {"policy": "auto", "cfsQuotaBurstPercent": 150, "sharePoolThresholdPercent": 100}
COLOCATION = {
    "enable": True,
    "cpuReclaimThresholdPercent": 600,
    "memoryReclaimThresholdPercent": 200,
    "freeClassEnable": True,
    "midReclaimMode": "static",
    "midStaticCPUReservedPercent": 50,
    "midStaticMemoryReservedPercent": 20,
}


def set_policy(node: GuestNode, *, idle: Literal["", "tier", "pods"] = "", **threshold: object) -> None:
    """The policy of all tests, with further fields of the threshold's strategy; ``idle``: which groups are."""
    by = "podIdle" if idle == "pods" else "coreSched"
    qos = {"policies": {"cpuPolicy": by}, "beClass": {"cpuQOS": {"enable": True, "schedIdle": int(bool(idle))}}}
    strategies = {"threshold": SUPPRESS | threshold, "burst": BURST, "qos": qos}
    node.set_policy(colocation=COLOCATION, **{key: {"clusterStrategy": one} for key, one in strategies.items()})


def trace_best_effort(node: GuestNode) -> None:
    """Have the kernel record when CPU 1 begins or ends to run a thread of a best-effort pod, from now on."""
    threads = f"cat $(find {KUBEPODS}/besteffort -name cgroup.threads) | tr '\\n' ' '"
    settings = {"trace_clock": "boot", "tracing_cpumask": "2", "options/event-fork": "1"}
    written = [f"echo {value} > {file}" for file, value in settings.items()]
    written += [f'echo "$({threads})" > set_event_pid', "echo 1 > events/sched/sched_switch/enable"]
    node.guest.sh(" && ".join([f"mount -t tracefs none {TRACING}", f"cd {TRACING}", *written]))


def traced_s(node: GuestNode) -> list[float]:
    """When it did so, in seconds since the guest's boot."""
    lines = node.guest.sh(f"grep sched_switch: {TRACING}/per_cpu/cpu1/trace || true").splitlines()
    return [float(line.partition(": sched_switch:")[0].split()[-1]) for line in lines]


@dataclass(frozen=True, slots=True)
class Pods:
    """Uids of pods in a namespace: throttled at its limit; alone on a CPU; two of best effort, with work and memory."""

    namespace: str
    web: str
    pinned: str
    batch: str
    hoard: str


@pytest.fixture(scope="module")
def node() -> Iterator[GuestNode]:
    """The node, Ready; the agent starts meanwhile."""
    with running_guest_node() as node:
        yield node


@pytest.fixture(scope="module")
def pods(node: GuestNode) -> Pods:
    """All of them run."""
    set_policy(node)
    here = node.namespace()
    limit = {"cpu": "200m", "memory": "64Mi"}
    whole = {"cpu": "1", "memory": "64Mi"}
    web = node.run(here, "web", "burn", "spin", "1", resources={"requests": {"cpu": "100m"}, "limits": limit})
    batch = node.best_effort(here, "batch", "burn", "spin", "1", cpu_milli=500, mem_mib=256)
    hoard = node.best_effort(here, "hoard", "burn", "fill", str(HOARD_MIB), cpu_milli=100, mem_mib=2 * HOARD_MIB)
    node.wait(lambda: len(node.containers(here)) == 3, "the pods run that share all CPUs")
    trace_best_effort(node)
    node.wait(lambda: traced_s(node), "best-effort pods run on CPU 1")
    pinned = node.run(here, "pinned", "burn", "serve", "10", "1000", resources={"requests": whole, "limits": whole})
    node.wait(lambda: len(node.containers(here)) == 4, "the pods run")
    return Pods(here, web, pinned, batch, hoard)
