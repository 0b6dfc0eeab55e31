"""``kubectl top`` and Slacktide agree: a real metrics-server shows what the agent samples."""

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import NamedTuple

import pytest

from slacktide.schemas.sample import NodeSample
from testbed.cluster import images
from testbed.cluster.api_server import Json
from testbed.cluster.installed import Installed
from testbed.cluster.metrics_server import API, MetricsServer
from testbed.cluster.real_node import RealNode
from testbed.sampled import sampled

MARKS = (pytest.mark.alone, pytest.mark.realnode, pytest.mark.kafka, pytest.mark.metricsserver)
pytestmark = [*MARKS, pytest.mark.timeout(480)]

WITHIN = 0.05
WINDOWS = 3
"""In a row, so that what ran in the seconds at their ends counts little."""
STAMP_MS = 1_000
"""The metrics API cuts off fractions of a second: a window begins and ends within the second that it names."""
MIB = 1 << 20
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {image}
    command: {command}
    resources: {{requests: {{cpu: 10m}}, limits: {{cpu: 300m, memory: 256Mi}}}}
"""
PODS = {"spins": ["burn", "spin", "1"], "fills": ["burn", "fill", "150"]}


class Shown(NamedTuple):
    """What ``kubectl top`` prints in a line: averages over a window."""

    begin_ms: int
    end_ms: int
    cpu_milli: int
    mem_mib: int


@pytest.fixture
def node(slacktide: Installed) -> Iterator[RealNode]:
    server = MetricsServer(slacktide.node)
    try:
        server.start()
        yield slacktide.node
    finally:
        server.stop()


def window(item: Json) -> tuple[int, int]:
    """Begin and end of a figure in the metrics API, in milliseconds."""
    end_ms = round(datetime.fromisoformat(item["timestamp"]).timestamp() * 1000)
    return end_ms - round(float(item["window"].removesuffix("s")) * 1000), end_ms


def top(node: RealNode, namespace: str) -> dict[str, Shown]:
    """By name of the pod, and of the node. Empty while a figure is absent or changes."""

    def windows() -> dict[str, tuple[int, int]]:
        items = node.get(f"{API}/namespaces/{namespace}/pods")["items"] + node.get(f"{API}/nodes")["items"]
        return {item["metadata"]["name"]: window(item) for item in items}

    before = windows()
    if before.keys() != {node.name, *PODS}:
        return {}
    pods = node.kubectl("top", "pods", "-n", namespace, "--no-headers").splitlines()
    (whole,) = (line.split() for line in node.kubectl("top", "nodes", "--no-headers").splitlines())
    lines = {name: (cpu, mem) for name, cpu, mem in map(str.split, pods)} | {whole[0]: (whole[1], whole[3])}
    if windows() != before:
        return {}
    return {
        name: Shown(*before[name], int(cpu.removesuffix("m")), int(mem.removesuffix("Mi")))
        for name, (cpu, mem) in lines.items()
    }


def average(seen: list[NodeSample], shown: Shown, of: Callable[[NodeSample], int | None]) -> float:
    """Of the samples in a window, weighted by their spans."""
    between = [one for one in seen if shown.begin_ms < one.observed_ms <= shown.end_ms]
    weighted = [(found, one.interval_ms) for one in between if (found := of(one)) is not None]
    return sum(found * span for found, span in weighted) / sum(span for _, span in weighted)


def joined(windows: list[Shown]) -> list[tuple[int, int]]:
    """Begin and end of each row of windows without a gap."""
    found: list[tuple[int, int]] = []
    for one in windows:
        if found and one.begin_ms - found[-1][1] <= STAMP_MS:
            found[-1] = (found[-1][0], one.end_ms)
        else:
            found.append((one.begin_ms, one.end_ms))
    return found


def least_and_most(
    seen: list[NodeSample], windows: list[Shown], of: Callable[[NodeSample], int | None]
) -> tuple[float, float]:
    """Milli-CPUs over the windows by samples that lie in them for sure, and by all that may reach into them."""
    inside = around = 0
    for begin_ms, end_ms in joined(windows):
        for one in seen:
            work, since_ms = (of(one) or 0) * one.interval_ms, one.observed_ms - one.interval_ms
            inside += work * (since_ms >= begin_ms + STAMP_MS and one.observed_ms <= end_ms)
            around += work * (one.observed_ms > begin_ms and since_ms < end_ms + STAMP_MS)
    whole_ms = sum(one.end_ms - one.begin_ms for one in windows)
    return inside / whole_ms, around / whole_ms


def test_kubectl_top_shows_what_the_agent_samples_within_5_percent(node: RealNode, slacktide: Installed) -> None:
    """But for the node's memory, where the kubelet counts active page cache, and the agent what is not available."""
    here = node.namespace("top")
    for name, command in PODS.items():
        node.apply(POD.format(name=name, image=images.BURN, command=json.dumps(command)), here)
    readings: list[dict[str, Shown]] = []

    def read() -> bool:
        """A first window may have begun before the pods did what they do; it counts for none."""
        found = top(node, here)
        ends = {name: shown.end_ms for name, shown in found.items()}
        if found and all(ends[name] != shown.end_ms for one in readings[-1:] for name, shown in one.items()):
            readings.append(found)
        return len(readings) > WINDOWS

    node.wait(read, "figures of metrics-server", 180)
    last_ms = max(shown.end_ms for shown in readings[-1].values())
    seen: list[NodeSample] = []

    def are_sampled() -> bool:
        seen[:] = asyncio.run(sampled(slacktide.kafka.cluster, node.name))
        return seen[-1].observed_ms >= last_ms

    node.wait(are_sampled, "samples of the same time")
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in node.pods(here)}

    def used(sample: NodeSample, name: str, figure: str) -> int | None:
        part = next((one for one in sample.pod_use if one.uid == uids[name]), None) if name in uids else sample.use
        found: int | None = getattr(part, figure, None)
        return found

    for name in ("spins", node.name):
        windows = [one[name] for one in readings[1:]]
        spans_ms = [one.end_ms - one.begin_ms for one in windows]
        theirs = sum(one.cpu_milli * span for one, span in zip(windows, spans_ms, strict=True)) / sum(spans_ms)
        least, most = least_and_most(seen, windows, lambda one, name=name: used(one, name, "cpu_milli"))  # type: ignore[misc]
        assert least * (1 - WITHIN) <= theirs <= most * (1 + WITHIN), f"{name} {theirs}: {least} to {most}"
        assert most < 2 * least, f"{name}: the windows are too short to say anything"
    fills = [one["fills"] for one in readings[1:]]
    ours = sum(average(seen, shown, lambda one: used(one, "fills", "mem_bytes")) for shown in fills) / MIB
    assert ours == pytest.approx(sum(shown.mem_mib for shown in fills), rel=WITHIN)
    node.kubectl("delete", "namespace", here, "--wait=false")
