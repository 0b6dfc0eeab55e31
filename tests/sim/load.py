"""What runs on the nodes: services that spike, batch work that eats what it gets, pods that come and go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.node import Node
from sim.policies import POOLS
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.qos import as_held
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import ANNOTATION_SYSTEM_QOS

if TYPE_CHECKING:
    from sim.world import World

GIB = 1 << 30
PODS_MOST = 10
BATCH_MEM_BYTES = 4 * GIB
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
        self._leaks: set[str] = set()
        self._tight = True
        self._seen: set[str] = set()
        """Pods that a machine has had."""

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
        self._until_ms = until_ms
        for node in self.world.nodes:
            self._spike(node)
            self._reap(node)
            self.world.timeline.after(self.world.rng.randint(5_000, 30_000), lambda node=node: self._change(node))

    def _spike(self, node: Node) -> None:
        rng = self.world.rng
        node.advance()
        for pod in node.pods:
            group = node.machine.pods.get(pod.uid)
            if group is not None:
                hungry = pod.qos_label == "BE" or rng.random() < 0.3
                group.demand_milli = rng.randint(0, node.machine.cpus * (1500 if hungry else 800))
                if pod.uid not in self._leaks:
                    group.mem_bytes = rng.randint(0, GIB)
        self._again(rng.choice([700, 2000, 3000, 9000]), node, self._spike)

    def _change(self, node: Node) -> None:
        """A pod starts or ends; the kernel and the agent's list hear of it at different times."""
        rng = self.world.rng
        node.advance()
        pods = list(node.pods)
        if len(pods) > 2 and (rng.random() < 0.5 or len(pods) > PODS_MOST):
            gone = pods.pop(rng.randrange(len(pods)))
            self.world.timeline.after(rng.choice([0, 1500]), lambda: self._end(node, gone.uid))
        else:
            pods.append(self._start(node, rng.choice(KINDS)))
        self.world.trace.note(node.name, "pods", *[pod.name for pod in pods])
        self.world.timeline.after(rng.choice([0, 10, 1500]), lambda: node.tell_pods(pods))
        self._again(rng.randint(5_000, 30_000), node, self._change)

    def leak(self, node: Node, for_ms: int | None = None) -> None:
        """One best-effort pod after another takes memory until the leak ends; None: until all leaks end."""
        grow_bytes = self.world.rng.choice([GIB, 2 * GIB, 6 * GIB])
        self.world.trace.note(node.name, "leaks", f"{grow_bytes // GIB} GiB each second")
        until_ms = None if for_ms is None else self.world.timeline.now_ms + for_ms
        self._grow(node, grow_bytes, until_ms)

    def end_leaks(self) -> None:
        """Who has taken too much gives it back."""
        for node in self.world.nodes:
            for uid in self._leaks & node.machine.pods.keys():
                node.machine.pods[uid].mem_bytes = GIB
        self._leaks.clear()
        self._tight = False

    def _grow(self, node: Node, grow_bytes: int, until_ms: int | None) -> None:
        node.advance()
        groups = node.machine.best_effort.children
        if until_ms is not None and self.world.timeline.now_ms >= until_ms:
            self._leaks.difference_update(group.uid for group in groups)
            return
        if not self._tight or not groups:
            return
        leaking = [group for group in groups if group.uid in self._leaks] or self.world.rng.choices(groups)
        self._leaks.add(leaking[0].uid)
        room_bytes = node.machine.mem_bytes - node.machine.root.sums()[0]
        leaking[0].mem_bytes += max(0, min(grow_bytes, room_bytes))
        self.world.timeline.after(1_000, lambda: self._grow(node, grow_bytes, until_ms))

    def _reap(self, node: Node) -> None:
        """Kubernetes notices who has ended: sooner or later the list is rid of it."""
        alive = [pod for pod in node.pods if pod.uid in node.machine.pods or pod.uid not in self._seen]
        self._seen |= node.machine.pods.keys()
        if len(alive) < len(node.pods):
            node.tell_pods(alive)
        self._again(self.world.rng.choice([1_000, 3_000, 8_000]), node, self._reap)

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
        group.linger_ms = rng.choice([0, 300, 2_500, None])
        pod = Pod(
            uid=uid,
            namespace="default",
            name=f"{kube_qos.lower()}-{self._started}",
            qos_label=label,
            priority=priority,
            kube_qos=kube_qos,
            requests=Resources(
                cpu_milli=request_milli or None,
                batch_mem_bytes=BATCH_MEM_BYTES if label == "BE" else None,
            ),
            grace_s=rng.choice([0, 1, 5]),
            cpuset=str(rng.randrange(node.machine.cpus)) if label in {"LSE", "LSR"} else "",
        )
        return as_held(pod)  # as the agent reports it

    def _again(self, delay_ms: int, node: Node, what: Callable[[Node], None]) -> None:
        if self.world.timeline.now_ms + delay_ms < self._until_ms:
            self.world.timeline.after(delay_ms, lambda: what(node))
