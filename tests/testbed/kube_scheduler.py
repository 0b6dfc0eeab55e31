"""A kube-scheduler that asks Slacktide's part of scheduling, and what the log has of the nodes."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.scheduler.answers import Answers
from slacktide.agents.cluster.scheduler.gangs import Gangs
from slacktide.agents.cluster.scheduler.reservations import Reservations
from slacktide.agents.cluster.scheduler.view import View
from slacktide.agents.cluster.scheduler.words import worded
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.score import NodeScore
from slacktide.streams.decisions.load.pod_placement import PlacementArgs

GIB = 2**30
WALL_S = 1_700_000_000


class Still:
    """Time that stands still until it is moved on."""

    now_s = 1_000.0

    def mono_ns(self) -> int:
        return round(self.now_s * 10**9)

    def wall_ms(self) -> int:
        return WALL_S * 1_000 + round((self.now_s - Still.now_s) * 1_000)


def figures(
    node: str = "a", *, use: int = 1_000, batch: int | None = 4_000, cpu: int = 8_000, **said: Any
) -> list[Any]:
    """Score, metric and allocatable of a node of 8 CPUs."""
    known = {"node": node, "boot_id": "1-a", "seq": 1, "observed_ms": 1, "policy_version": "p"}
    known |= {"facts_revision": "f", "pods_revision": "r", **said}
    window = {"window_ms": 300_000, "covered_ms": 300_000}
    used, whole = Use(cpu_milli=use, mem_bytes=GIB), Use(cpu_milli=cpu, mem_bytes=16 * GIB)
    left = Use(cpu_milli=batch or 0, mem_bytes=8 * GIB)
    return [
        NodeScore(**known, allocatable=whole, use=used, prod_use=used, batch_left=left),
        NodeMetric(**known, **window, samples=1, node_use=used, system_use=used),
        NodeAllocatable(**known, **window, batch_cpu_milli=batch, batch_mem_bytes=8 * GIB),
    ]


def answers(
    view: View, publish: Callable[[PodPlacement], None], clock: Clock, replica: str = "",
    decide: Callable[[str, Any], None] = lambda *_: None,
) -> Answers:  # fmt: skip
    """With gangs and reservations, whose decisions go to ``decide``."""
    gangs, reservations = Gangs(view, replica, decide, worded), Reservations(view, decide)
    return Answers(view, publish, clock, gangs, reservations)


class Asked:
    """The part that a kube-scheduler asks, and what it published."""

    def __init__(self, **args: Any) -> None:
        self.told: list[PodPlacement] = []
        self.args = PlacementArgs(**args)
        self.view = View(self.args)
        self.clock = Still()
        self.answers = answers(self.view, self.told.append, self.clock)

    def receive(self, *records: Any) -> None:
        for one in records:
            self.view.receive(one, received_s=self.clock.now_s, logged_s=WALL_S)

    def filter(self, pod: dict[str, Any], *nodes: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.answers.filter(question(pod, nodes)))
        return answer

    def prioritize(self, pod: dict[str, Any], *nodes: str) -> dict[str, int]:
        return {one["Host"]: one["Score"] for one in json.loads(self.answers.prioritize(question(pod, nodes)))}

    def woken(self) -> list[str]:
        """Names of pods that are woken now."""
        return [one.key[1] for one in self.answers.waiting.wake(1_000, now_s=self.clock.now_s)]


def question(pod: dict[str, Any], nodes: Sequence[str] | None) -> bytes:
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": nodes}).encode()


def manifest(name: str = "p", cpu: str = "1000", memory: str = "1Gi", node: str = "", **said: Any) -> dict[str, Any]:
    """A batch pod; ``said``: fields of its specification."""
    asks = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
    containers = [{"name": "main", "resources": {"requests": asks, "limits": asks}}]
    return {
        "metadata": {"name": name, "namespace": "batch", "uid": f"uid-{name}"},
        "spec": {
            "nodeName": node,
            "schedulerName": "koord-scheduler",
            "priority": 5500,
            "containers": containers,
            **said,
        },
        "status": {"phase": "Running" if node else "Pending"},
    }
