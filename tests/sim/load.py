"""What runs on the nodes: services that spike, batch work that eats what it gets, pods that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.node import Node
from sim.policies import POOLS
from slacktide.deploy.cli.virtual.machine import Machine
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.streams.decisions.node_cpus import ANNOTATION_SYSTEM_QOS

if TYPE_CHECKING:
    from sim.world import World

GIB = 1 << 30
KINDS = [
    # kube_qos, qosClass label, priority
    ("Burstable", "LS", 9500),
    ("Guaranteed", None, 9000),
    ("BestEffort", "BE", 5500),
    ("BestEffort", None, None),
    ("Burstable", "BE", 5000),
    ("BestEffort", "LS", None),
    ("Guaranteed", "LSR", 9900),
    ("Guaranteed", "LSE", 9900),
]


class Load:
    """Sets what pods want, and tells agents of pods: sometimes late, sometimes early."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._until_ms = 0
        self._started = 0

    def new_node(self, name: str, partition: int) -> Node:
        """A node with a service and batch work on it."""
        rng = self.world.rng
        cpus = rng.choice([2, 4, 8, 16])
        machine = Machine(cpus=cpus, mem_bytes=16 * GIB, version=rng.choice([1, 2]))
        machine.system.demand_milli = rng.randint(0, 300)
        capacity = Resources(cpu_milli=cpus * 1000, mem_bytes=16 * GIB)
        kept_milli = rng.choice([0, 0, 500])
        facts = NodeFacts(
            name=name,
            capacity=capacity,
            allocatable=Resources(cpu_milli=cpus * 1000 - kept_milli, mem_bytes=15 * GIB),
            reserved=Resources(cpu_milli=rng.choice([None, 200])),
            processors=machine.processors,
            annotations=rng.choice([{}, {}, {ANNOTATION_SYSTEM_QOS: '{"cpuset": "0-1"}'}]),
            labels={"pool": POOLS[len(self.world.nodes) % len(POOLS)]},
        )
        node = Node(self.world, name, partition, machine, facts)
        for kind in (KINDS[0], KINDS[2], *rng.choices(KINDS, k=rng.randint(0, 4))):
            node.pods = [*node.pods, self._start(node, kind)]
        return node

    def plan(self, until_ms: int) -> None:
        """Spikes and changes of pods, until the load stands still."""
        self._until_ms = until_ms
        for node in self.world.nodes:
            self._spike(node)
            self.world.timeline.after(self.world.rng.randint(5_000, 30_000), lambda node=node: self._change(node))

    def _spike(self, node: Node) -> None:
        rng = self.world.rng
        node.advance()
        for pod in node.pods:
            group = node.machine.pods.get(pod.uid)
            if group is not None:
                hungry = pod.qos_label == "BE" or rng.random() < 0.3
                group.demand_milli = rng.randint(0, node.machine.cpus * (1500 if hungry else 800))
                group.mem_bytes = rng.randint(0, GIB)
        self._again(rng.choice([700, 2000, 3000, 9000]), node, self._spike)

    def _change(self, node: Node) -> None:
        """A pod starts or ends; the kernel and the agent's list hear of it at different times."""
        rng = self.world.rng
        node.advance()
        pods = list(node.pods)
        if len(pods) > 2 and rng.random() < 0.5:
            gone = pods.pop(rng.randrange(len(pods)))
            self.world.timeline.after(rng.choice([0, 1500]), lambda: self._end(node, gone.uid))
        else:
            pods.append(self._start(node, rng.choice(KINDS)))
        self.world.trace.note(node.name, "pods", *[pod.name for pod in pods])
        self.world.timeline.after(rng.choice([0, 10, 1500]), lambda: node.tell_pods(pods))
        self._again(rng.randint(5_000, 30_000), node, self._change)

    def _end(self, node: Node, uid: str) -> None:
        node.advance()
        if uid in node.machine.pods:
            node.machine.remove_pod(uid)

    def _start(self, node: Node, kind: tuple[str, str | None, int | None]) -> Pod:
        rng = self.world.rng
        kube_qos, label, priority = kind
        self._started += 1
        uid = f"uid-{self._started}"
        request_milli = 0 if kube_qos == "BestEffort" else rng.randint(100, node.machine.cpus * 400)
        group = node.machine.add_pod(uid, kube_qos, request_milli=request_milli)
        group.demand_milli = rng.randint(0, node.machine.cpus * 1000)
        return Pod(
            uid=uid,
            namespace="default",
            name=f"{kube_qos.lower()}-{self._started}",
            qos_label=label,
            priority=priority,
            kube_qos=kube_qos,
            requests=Resources(cpu_milli=request_milli or None),
            cpuset=str(rng.randrange(node.machine.cpus)) if label in {"LSE", "LSR"} else "",
        )

    def _again(self, delay_ms: int, node: Node, what: Callable[[Node], None]) -> None:
        if self.world.timeline.now_ms + delay_ms < self._until_ms:
            self.world.timeline.after(delay_ms, lambda: what(node))
