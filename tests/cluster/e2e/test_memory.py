"""Memory fills on a real node: the predicted pod goes, through the API, and who forgives evictions loses nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import batch, images
from testbed.cluster.api_server import Json
from testbed.cluster.installed import Installed
from testbed.cluster.real_node import RealNode

pytestmark = [pytest.mark.alone, pytest.mark.realnode, pytest.mark.kafka, pytest.mark.timeout(480)]

MIB = 1 << 20
ABOVE_PCT = 6
"""So far above present use is the threshold: what else runs on the machine may not reach it."""


def mem_mib() -> tuple[int, int]:
    """What the machine has, and what of it is used."""
    told = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(told[key].split()[0]) // 1024 for key in ("MemTotal", "MemAvailable"))
    return total, total - free


@pytest.fixture
def node(slacktide: Installed) -> Iterator[RealNode]:
    yield slacktide.node
    batch.set_policy(slacktide.node)


def evicted(pod: Json) -> list[str]:
    """Why it was disrupted, if it was."""
    conditions = pod["status"].get("conditions", [])
    return [each["reason"] for each in conditions if each["type"] == "DisruptionTarget" and each["status"] == "True"]


@pytest.mark.story
def test_the_largest_goes_through_the_api_and_its_job_completes(node: RealNode, slacktide: Installed) -> None:
    """Of two pods of one priority the larger is evicted, the other stays; the Job's second pod has nothing to fill."""
    here = node.namespace("memory")
    total_mib, used_mib = mem_mib()
    threshold_pct = used_mib * 100 // total_mib + ABOVE_PCT
    much_mib, little_mib = total_mib * (ABOVE_PCT + 6) // 100, total_mib // 100
    batch.set_policy(
        node, cpuSuppressThresholdPercent=100, cpuSuppressMinPercent=50, memoryEvictThresholdPercent=threshold_pct
    )
    batch.pod(node, here, "little", "burn", "fill", str(little_mib), cpu_milli=500, mem_mib=little_mib * 2)
    # Work that keeps what it has done: begun a second time, it only ends.
    once = f"test -e /kept/done || {{ touch /kept/done; burn fill {much_mib} 400; }}"
    spec = batch.pod_spec("sh", "-c", once, cpu_milli=1000, mem_mib=much_mib * 2, image=images.BURN)
    spec["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    spec["volumes"] = [{"name": "kept", "hostPath": {"path": f"{node.folder}/{here}", "type": "DirectoryOrCreate"}}]
    batch.job(node, here, "much", spec, podFailurePolicy=batch.FORGIVES)
    reasons: dict[str, list[str]] = {}

    def job_completes() -> bool:
        for pod in node.pods(here, "job-name=much"):
            reasons.setdefault(pod["metadata"]["name"], []).extend(evicted(pod))
        status = node.get(f"/apis/batch/v1/namespaces/{here}/jobs/much")["status"]
        return status.get("succeeded") == 1

    node.wait(job_completes, "the Job completes", 180)
    (little,) = [pod for pod in node.pods(here) if pod["metadata"]["name"] == "little"]
    status = node.get(f"/apis/batch/v1/namespaces/{here}/jobs/much")["status"]
    victims = [name for name, why in reasons.items() if why]

    assert len(victims) == 1
    assert set(reasons[victims[0]]) == {"EvictionByEvictionAPI"}
    assert status.get("failed", 0) == 0
    assert little["status"]["phase"] == "Running"
    assert not evicted(little)
    assert_told(node, slacktide, here, victims[0], threshold_pct)
    node.kubectl("delete", "namespace", here, "--wait=false")


def test_of_three_classes_the_free_pod_goes_first_and_the_mid_pod_keeps_what_it_was_promised(
    node: RealNode,
) -> None:
    """All three fill memory; what the free pod gives back is enough."""
    here = node.namespace("classes")
    total_mib, used_mib = mem_mib()
    small_mib, much_mib = total_mib // 100, total_mib * (ABOVE_PCT + 2) // 100
    classes = {"freeClassEnable": True, "midReclaimMode": "static"}
    classes |= {"midStaticCPUReservedPercent": 50, "midStaticMemoryReservedPercent": 50}
    batch.set_policy(
        node,
        classes=classes,
        cpuSuppressThresholdPercent=100,
        cpuSuppressMinPercent=50,
        memoryEvictThresholdPercent=used_mib * 100 // total_mib + ABOVE_PCT,
    )
    for tier, fills_mib in (("mid", small_mib), ("batch", small_mib), ("free", much_mib)):
        command = ("burn", "fill", str(fills_mib))
        batch.pod(node, here, tier, *command, cpu_milli=500, mem_mib=fills_mib * 2, tier=tier)
    first: list[str] = []

    def one_goes() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in node.pods(here)}
        first.extend(name for name in ("free", "batch", "mid") if name not in pods or evicted(pods[name]))
        return bool(first)

    node.wait(one_goes, "a pod is evicted", 180)
    pods = {pod["metadata"]["name"]: pod for pod in node.pods(here)}
    group = node.group("memory", pods["mid"])

    assert first[0] == "free"
    assert pods["mid"]["status"]["phase"] == "Running"
    assert not evicted(pods["mid"])
    assert "kubepods/besteffort" in str(group)
    assert int((group / "memory.limit_in_bytes").read_text()) == small_mib * 2 * MIB
    node.kubectl("delete", "namespace", here, "--wait=false")
    # While a mid pod is there, each best-effort pod has a quota of its own, and one that ends takes its part along.
    node.wait(lambda: not node.pods(here), "the pods are gone")


def assert_told(node: RealNode, slacktide: Installed, namespace: str, name: str, threshold_pct: int) -> None:
    """The Event on the pod and ``slacktide explain pod`` say the same: which threshold, and what was seen."""
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events?fieldSelector=reportingController=slacktide.io/agent"
    node.wait(lambda: node.get(path)["items"], "an Event of the agent")
    (event,) = node.get(path)["items"]

    assert event["regarding"]["name"] == name
    assert f"threshold {threshold_pct}%" in event["note"]
    assert f"threshold {threshold_pct}%" in slacktide.explain("pod", f"{namespace}/{name}")
