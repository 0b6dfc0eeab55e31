"""Runs virtual nodes: a kernel model each, in real time, with cgroup files in a folder.

A seeded queue models the latency of the service. It has one server per CPU, first come, first served. Batch work slows
requests, since caches and memory are shared. On a CPU in use by batch work, a request waits until that is moved away,
then shares the CPU by weight. The constants give figures in the range of real machines. They are no evidence about a
real machine.
"""

import asyncio
import heapq
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from slacktide.deploy.demo.backend import Machine, Nodes, Place, Served, Used
from slacktide.deploy.demo.conditions import Load, steady
from slacktide.deploy.demo.ls_worker import REQUEST_CPU_MS, arrivals
from slacktide.deploy.demo.pods import DemoPod, Form, batch_pods, service_pod
from slacktide.deploy.virtual import machine as model
from slacktide.deploy.virtual.files import Projection
from slacktide.schemas.connection import Cluster
from slacktide.streams.tasks import ended

SHARED_CACHE_COST = 0.35
"""Slowdown of a request with batch work on all CPUs."""
SLICE_MS = 2.0
"""Mean time slice of a CPU for an equal process."""
CPUS = 8
MEM_BYTES = 32 << 30
TICK_S = 0.05
SYSTEM_PART = 0.03
POD_MEM_BYTES = 200 << 20
WITHOUT_END_S = 1e9
AGENTS = "slacktide.deploy.demo.agents"
"""The module of the agents' process, by name: it imports this one."""


def place_of(folder: Path) -> Place:
    """Return where the files of a node are."""
    return Place(
        cgroup_mount=folder / "cgroup",
        proc_mount=folder / "proc",
        kubepods=model.KUBEPODS,
        state_folder=folder / "agent",
    )


class Queue:
    """One node's service."""

    def __init__(self, servers: int, seed: int) -> None:
        self._free_s = [0.0] * servers
        self._dice = random.Random(seed)  # noqa: S311 a model, not a secret

    def serve(self, arrivals_s: Iterable[float], *, batch_part: float, batch_share: float) -> list[Served]:
        """Serve requests in order of arrival, ascending over all calls.

        ``batch_part`` is the part of the machine used by batch work, ``batch_share`` the part of a contended CPU that
        it keeps by weight, 0 to 1.
        """
        served = []
        for arrival_s in arrivals_s:
            service_ms = REQUEST_CPU_MS * (1 + SHARED_CACHE_COST * batch_part)
            if self._dice.random() < batch_part:
                service_ms = service_ms / (1 - batch_share) + batch_share * self._dice.expovariate(1 / SLICE_MS)
            end_s = max(arrival_s, heapq.heappop(self._free_s)) + service_ms / 1000
            heapq.heappush(self._free_s, end_s)
            served.append(Served(arrival_s, (end_s - arrival_s) * 1000))
        return served


class VirtualNode:
    """One node: kernel model, service queue and batch work."""

    def __init__(self, name: str, number: int, size: Machine, folder: Path) -> None:
        self.name = name
        self.form: Form = "none"
        self.batch: list[DemoPod] = []
        self.machine = model.Machine(cpus=size.capacity_milli // 1000, mem_bytes=size.mem_bytes)
        self.machine.system.demand_milli = round(size.capacity_milli * SYSTEM_PART)
        self._size = size
        self._number = number
        self._service = service_pod(name, size.capacity_milli)
        self._add(self._service)
        self._files = Projection(self.machine, folder)
        self._queue = Queue(self.machine.cpus, seed=number)
        self._coming: Iterator[float] = iter(())
        self._next_s: float | None = None
        self._batch_ns = 0

    def play(self, load: Load, seed: int, start_s: float) -> None:
        """Change the load from an instant on."""
        rates = load.rates(self._size.capacity_milli, 1)
        self._coming = arrivals(f"{seed}/{self._number}", rates, start_s)
        self._next_s = next(self._coming, None)

    def enter(self, form: Form) -> None:
        """Change the batch pods."""
        for pod in self.batch:
            self.machine.remove_pod(pod.uid)
        self.form, self.batch, self._batch_ns = form, batch_pods(form, self.name, self._size.capacity_milli), 0
        for pod in self.batch:
            self._add(pod)
            self.machine.pods[pod.uid].demand_milli = self._size.capacity_milli

    def step(self, now_s: float, dt_ms: int) -> list[Served]:
        """Advance to now: apply the agent's writes, serve requests, write files."""
        due = []
        while self._next_s is not None and self._next_s <= now_s:
            due.append(self._next_s)
            self._next_s = next(self._coming, None)
        self.machine.pods[self._service.uid].demand_milli = round(len(due) * REQUEST_CPU_MS * 1000 / dt_ms)
        self._files.read_back()
        self.machine.step(dt_ms)
        self._files.write_files()
        batch_ns = sum(self.machine.pods[pod.uid].usage_ns for pod in self.batch)
        part = (batch_ns - self._batch_ns) / (dt_ms * 1_000_000 * self.machine.cpus)
        self._batch_ns = batch_ns
        return self._queue.serve(due, batch_part=min(1.0, max(0.0, part)), batch_share=self._batch_share())

    def used(self) -> Used:
        """Return the CPU seconds so far."""
        pods = self.machine.pods
        return Used(
            service_s=pods[self._service.uid].usage_ns / 1e9,
            batch_s=sum(pods[pod.uid].usage_ns for pod in self.batch) / 1e9,
        )

    def pods(self) -> list[DemoPod]:
        """Return the service and the batch work."""
        return [self._service, *self.batch]

    def _add(self, pod: DemoPod) -> None:
        group = self.machine.add_pod(pod.uid, pod.kube_qos, request_milli=pod.request_milli)
        group.mem_bytes = POD_MEM_BYTES

    def _batch_share(self) -> float:
        """Return the batch work's share by the kubelet's weights: of the pods in one tier, else of the tiers."""
        if self.form == "none":
            return 0.0
        if self.form == "besteffort":
            batch, service = self.machine.best_effort.weight, self.machine.groups["kubepods/burstable"].weight
        else:
            batch = sum(self.machine.pods[pod.uid].weight for pod in self.batch)
            service = self.machine.pods[self._service.uid].weight
        return batch / (batch + service)


class VirtualBackend(Nodes):
    """Several identical virtual nodes."""

    mode = "virtual"

    def __init__(self, count: int, folder: Path, why: str) -> None:
        self.machine = Machine(capacity_milli=CPUS * 1000, mem_bytes=MEM_BYTES)
        self.nodes = tuple(f"virtual-{number + 1}" for number in range(count))
        self.why = f"{why}: {count} virtual node{'s' * (count > 1)} of {CPUS} CPUs, a kernel model with cgroup files"
        self._folder = folder
        self._running: list[VirtualNode] = []
        self._served: list[Served] = []
        self._driver: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Create the nodes and start their clock."""
        for number, name in enumerate(self.nodes):
            self._running.append(VirtualNode(name, number, self.machine, self._folder / name))
        self.play({name: steady(WITHOUT_END_S) for name in self.nodes}, 0, time.monotonic())
        self._driver = asyncio.create_task(self._drive(), name="virtual kernel")

    def place(self, node: str) -> Place:
        """Return a node's folders."""
        return place_of(self._folder / node)

    def agents(self, bootstrap: Cluster, inventory: Path) -> list[str]:
        """Return the command of one process for all agents."""
        return [AGENTS, str(bootstrap), str(inventory), str(self._folder), *self.nodes]

    async def enter(self, form: Form) -> None:
        """Change the batch pods on each node."""
        for node in self._running:
            if node.form != form:
                node.enter(form)

    def pods(self) -> list[DemoPod]:
        """Return the pods of all nodes."""
        return [pod for node in self._running for pod in node.pods()]

    def play(self, loads: Mapping[str, Load], seed: int, start_s: float) -> None:
        """Change the load on each node."""
        for node in self._running:
            node.play(loads[node.name], seed, start_s)

    def served(self) -> list[Served]:
        """Return the requests served since the last call."""
        served, self._served = self._served, []
        return served

    def used(self) -> Used:
        """Return the use over all nodes."""
        each = [node.used() for node in self._running]
        return Used(service_s=sum(used.service_s for used in each), batch_s=sum(used.batch_s for used in each))

    def trouble(self) -> str:
        """Return whether the model has stopped."""
        if self._driver is None or not self._driver.done():
            return ""
        return f"the kernel model stopped: {self._driver.exception()!r}"

    async def close(self) -> None:
        """Stop the clock."""
        if self._driver is not None:
            await ended(self._driver)

    async def _drive(self) -> None:
        before_s = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            dt_ms = round((now_s - before_s) * 1000)
            before_s += dt_ms / 1000
            for node in self._running:
                self._served += node.step(now_s, dt_ms)
