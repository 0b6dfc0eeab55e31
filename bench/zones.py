"""What NUMA zones cost the scheduler's extender: both questions about a pod, CPU time, without Kafka and HTTP."""

import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from bench.rig import Rig
from bench.rows import Row, judged, told
from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.scheduler.view import View
from slacktide.deploy.runtime import garbage
from slacktide.schemas.metric import NodeMetric, PodMetric, Use
from slacktide.schemas.score import NodeScore
from slacktide.schemas.zones import BoundPod, NodeZones, Zone, ZoneDistance, ZoneResources
from slacktide.streams.decisions.load.pod_placement import PlacementArgs
from testbed.kube_scheduler import answers
from testbed.scheduler_pods import parsed

NODES, BRIEF_NODES = 1_000, 50
PODS_OF_NODE = 30
PODS, BRIEF_PODS = 400, 20
CHANGED = (2, 10)
"""Nodes whose zones change between two pods."""
MS_MAX = 6.0
GIB = 2**30
ZONE_MILLI, CORE_MILLI = 8_000, 1_000


def measure(rig: Rig) -> list[Row]:
    """Guaranteed pods of one kind, and nodes with 30 pods and two zones that differ from node to node."""
    nodes, pods = (BRIEF_NODES, BRIEF_PODS) if rig.brief else (NODES, PODS)
    rows = []
    for changed in CHANGED:
        rig.say(f"zones: {nodes} nodes, {pods} pods, {changed} nodes change in between")
        without = _Extender(nodes, zones=False).asked(pods, changed)
        taken = _Extender(nodes, zones=True).asked(pods, changed)
        mean = statistics.fmean(taken)
        row = judged(
            f"filter and score a pod, {changed} of {nodes} nodes' zones change",
            f"<= {MS_MAX:g} ms CPU",
            f"mean {mean:.1f} ms, median {statistics.median(taken):.1f} ms; "
            f"without zones mean {statistics.fmean(without):.1f} ms",
            met=mean <= MS_MAX,
            n=pods,
            ms=mean,
            without_ms=statistics.fmean(without),
        )
        rows.append(row)
    first = _Extender(nodes, zones=True).first()
    return [*rows, told("the first pod of a kind asks every node", f"{first:.0f} ms CPU", n=nodes, ms=first)]


class _Extender:
    """One process's, which knows these nodes."""

    def __init__(self, nodes: int, *, zones: bool) -> None:
        self._dice = random.Random(1)
        self._names = [f"node-{number:04}" for number in range(nodes)]
        self._zones, self._clock, self._seq = zones, SystemClock(), 0
        self._view = View(PlacementArgs())
        self._answers = answers(self._view, lambda _: None, self._clock)
        for name in self._names:
            for number in range(PODS_OF_NODE):
                self._view.changed(parsed(_pod(f"{name}-{number}", node=name)), at_s=self._clock.wall_ms() / 1_000)
            self._change(name)
        garbage.seldom()

    def first(self) -> float:
        """CPU time of the first pod's questions, ms."""
        return self._ask(0)

    def asked(self, pods: int, changed: int) -> list[float]:
        """CPU time of each further pod's questions, ms; so many nodes change in between."""
        self.first()
        taken = []
        for number in range(pods):
            for name in self._dice.sample(self._names, changed):
                self._change(name)
            taken.append(self._ask(number + 1))
        return taken

    def _change(self, name: str) -> None:
        """Its load is published anew, and its zones where it has some."""
        self._seq += 1
        now_s = self._clock.mono_ns() / 1e9
        for figures in _load(name, self._seq, self._dice.randrange(CORE_MILLI, 4 * CORE_MILLI)):
            self._view.receive(figures, received_s=now_s, logged_s=self._clock.wall_ms() / 1_000)
        if self._zones:
            free = [self._dice.randrange(2 * CORE_MILLI, ZONE_MILLI), self._dice.randrange(ZONE_MILLI)]
            self._view.take_zones(_record(name, self._seq, free), published_s=now_s)

    def _ask(self, number: int) -> float:
        pod = _pod(f"waits-{number}")
        taken_ms, passed = _timed(self._answers.filter, _question(pod, self._names))
        names = json.loads(passed)["NodeNames"]
        return taken_ms + _timed(self._answers.prioritize, _question(pod, names))[0]


def _timed(answer: Callable[[bytes], bytes], question: bytes) -> tuple[float, bytes]:
    began_s = time.thread_time()
    answered = answer(question)
    return (time.thread_time() - began_s) * 1e3, answered


def _question(pod: dict[str, Any], nodes: list[str]) -> bytes:
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": nodes}).encode()


def _pod(name: str, node: str = "") -> dict[str, Any]:
    asks = {"cpu": "2", "memory": "1Gi"}
    containers = [{"name": "main", "image": "none", "resources": {"requests": asks, "limits": asks}}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": containers, "schedulerName": "koord-scheduler", "priority": 9_500, "nodeName": node},
        "status": {"phase": "Running" if node else "Pending", "qosClass": "Guaranteed"},
    }


def _load(node: str, seq: int, use_milli: int) -> list[NodeScore | NodeMetric]:
    known: dict[str, Any] = {"node": node, "boot_id": "b", "seq": seq, "observed_ms": 1, "policy_version": "p"}
    known |= {"facts_revision": "f", "pods_revision": "r"}
    pods = [
        PodMetric(
            uid=f"{node}-{number}", namespace="default", name=f"{node}-{number}", use=Use(cpu_milli=50, mem_bytes=1)
        )
        for number in range(PODS_OF_NODE)
    ]
    used, whole = Use(cpu_milli=use_milli, mem_bytes=GIB), Use(cpu_milli=2 * ZONE_MILLI, mem_bytes=32 * GIB)
    return [
        NodeScore(**known, allocatable=whole, use=used, prod_use=used, batch_left=Use(cpu_milli=0, mem_bytes=0)),
        NodeMetric(
            **known, window_ms=300_000, covered_ms=300_000, samples=1, node_use=used, system_use=used, pods=pods
        ),
    ]


def _record(node: str, seq: int, free_milli: list[int]) -> NodeZones:
    zones = [
        Zone(
            id=number,
            allocatable=ZoneResources(cpu_milli=ZONE_MILLI, mem_bytes=16 * GIB),
            available=ZoneResources(cpu_milli=free, mem_bytes=16 * GIB),
            distances=[ZoneDistance(zone=other, distance=10 if other == number else 21) for other in (0, 1)],
        )
        for number, free in enumerate(free_milli)
    ]
    said: dict[str, Any] = {"node": node, "boot_id": "b", "seq": seq, "observed_ms": 1, "zones": zones}
    said["pods"] = [BoundPod(uid=f"{node}-{pod}", zones=[pod % 2]) for pod in range(PODS_OF_NODE)]
    return NodeZones(**said, policy="single-numa-node", scope="container", cpu_static=True, memory_static=True)
