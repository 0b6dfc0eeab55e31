"""A cluster of nodes that nobody has, all of Slacktide that stands beside an API server, and what each part costs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from bench import admin, log
from bench.fleet import CAPACITY, name_of
from bench.process import Running, Slacktide, environment
from bench.rig import CannotRunError, Rig
from bench.tides import config_map, policy
from slacktide.agents.clock import SystemClock
from slacktide.agents.cluster.bridge import mirror
from slacktide.agents.kubernetes.api_server import ApiServer, Changed, Whole, follow
from slacktide.agents.kubernetes.resource import NODES, PODS
from slacktide.schemas.topics import COMMAND, SAMPLE, SCORE
from testbed.cluster.identity import access_of
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.programs import Program
from testbed.cluster.scheduler_rig import Json, Scheduling, scheduling
from testbed.rungs import built_program, lacks_api

AT_ONCE, DELETED_AT_ONCE = 16, 200
OPERATORS = "koordinator-system"
FAKE = {"kwok.x-k8s.io/node": "fake"}
LEASE_S = 240
"""Of kwok's nodes: kept fresh each 10 s, as by default, a thousand leases alone take a core."""
SIZE = {"cpu": f"{CAPACITY.cpu_milli}m", "memory": str(CAPACITY.mem_bytes), "pods": "110"}
ASKED = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
PATIENCE_S, CLOSING_S = 300.0, 1.0
KUBE_SCHEDULER = "kube-scheduler"
WARNINGS_SHOWN = 3


@dataclass(slots=True)
class Meter:
    """CPU time of processes from when they were first seen, and the most memory that was seen."""

    processes: dict[str, psutil.Process] = field(default_factory=dict)
    ended: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Figures of processes that are gone."""
    _begun: dict[str, tuple[float, float]] = field(default_factory=dict)

    def watch(self, name: str, pid: int) -> None:
        """From now on."""
        self.processes[name] = psutil.Process(pid)
        self._begun[name] = self.cpu_s(name), time.monotonic()

    def cpu_s(self, name: str) -> float:
        """User and system time so far."""
        times = self.processes[name].cpu_times()
        return float(times.user + times.system)

    def end(self, name: str, known_as: str) -> None:
        """It is about to go: its figures stay."""
        self.ended[known_as] = self._figures(name)
        self.drop(name)

    def drop(self, name: str) -> None:
        """It is about to go, and its figures with it."""
        del self.processes[name]

    def told(self) -> dict[str, tuple[float, float]]:
        """Percent of a core, and resident MB, by name."""
        return {name: self._figures(name) for name in self.processes} | self.ended

    def _figures(self, name: str) -> tuple[float, float]:
        cpu_s, at_s = self._begun[name]
        share = 100 * (self.cpu_s(name) - cpu_s) / (time.monotonic() - at_s)
        return share, self.processes[name].memory_info().rss / 1e6


class Colony:
    """``nodes`` nodes, and what runs beside them. ``step`` is the file that makes their load step."""

    def __init__(self, rig: Rig, at: Scheduling, bootstrap: str, nodes: int) -> None:
        self.rig = rig
        self.at = at
        self.bootstrap = bootstrap
        self.nodes = nodes
        self.meter = Meter()
        self.step = rig.memory / "step"
        self.set_step(None)
        self.access = access_of(at.cluster.kubeconfig)
        self.extender: Slacktide
        self.bridge: Slacktide
        self._parts: list[Slacktide] = []
        self._rounds = count(1)
        self.namespace = at.cluster.namespace("batch")
        self._stack = contextlib.ExitStack()

    def start_nodes(self, each_s: float, *, kwok: bool) -> None:
        """Nodes in the API server and in the log, a worker that answers them, and the extender; no bridge yet."""
        cluster = self.at.cluster
        cluster.apply(config_map(), OPERATORS)
        asyncio.run(self._make_nodes())
        if kwok:
            program = Program("kwok", self.rig.folder / "kwok.log")
            self._stack.callback(program.stop)
            flags = ["--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "-v=WARN"]
            flags += [f"--node-lease-duration-seconds={LEASE_S}", f"--kubeconfig={cluster.kubeconfig}"]
            program.start([str(built_program("kwok")), *flags, "--server-address=127.0.0.1:0"], lambda: True)
            self.meter.watch("kwok", program.pid)
        admin.set_up(self.bootstrap, (SAMPLE, COMMAND, SCORE), admin.STAMPED_BY_LOG)
        log.publish_policy(self.bootstrap, policy())
        worker = self._part("stream", "--bootstrap", self.bootstrap)
        command = [sys.executable, "-m", "bench.tides", self.bootstrap, str(self.nodes)]
        command += ["--each", str(each_s), "--step", str(self.step)]
        fleet = self._stack.enter_context(Running(self.rig, "virtual agents", command, environment()))
        self.meter.watch("virtual agents", fleet.process.pid)
        where = ["--bootstrap", self.bootstrap, "--kubeconfig", str(self.at.account.kubeconfig)]
        self.extender = self._part("scheduler", *where, "--port", str(self.at.port))
        log.wait_for_keys(self.bootstrap, SCORE, self.nodes, PATIENCE_S)
        worker.check()
        fleet.check()

    def set_step(self, step_ms: int | None) -> None:
        """Let the load of some nodes step up at a time, UTC epoch; None: no longer. Readers see the file whole."""
        part = self.step.with_suffix(".part")
        part.write_text("" if step_ms is None else str(step_ms))
        part.replace(self.step)

    def start_bridge(self) -> None:
        """It fills in what nodes sell."""
        account = self.at.cluster.account(SYSTEM, "slacktide-bridge")
        where = ["--bootstrap", self.bootstrap, "--kubeconfig", str(account.kubeconfig), "--namespace", SYSTEM]
        self.bridge = self._part("bridge", *where)

    def _part(self, name: str, *arguments: str) -> Slacktide:
        part = self._stack.enter_context(Slacktide(self.rig, name, *arguments))
        part.wait_ready(PATIENCE_S)
        self.meter.watch(name, part.process.pid)
        self._parts.append(part)
        return part

    def warnings(self) -> str:
        """The first warnings of each part; "": there are none."""
        few = [(part.name, part.warnings()[:WARNINGS_SHOWN]) for part in self._parts]
        return "\n".join(f"{name}: {line}" for name, lines in few for line in lines)

    def close(self) -> None:
        """End all that was started here."""
        self._stack.close()

    def selling(self) -> int:
        """How many nodes show batch resource."""
        return asyncio.run(self._selling())

    async def _selling(self) -> int:
        async with ApiServer(self.access, name="bench") as api:
            found = (await api.list(NODES, dict)).items
        return sum("kubernetes.io/batch-cpu" in (one["status"].get("allocatable") or {}) for one in found)

    def bare_patches_per_s(self, amount: str) -> float:
        """A loop that writes to each node's status once, as many at once as the bridge has.

        Args:
            amount: another one than before: what is there already the API server does not write.

        """
        return asyncio.run(self._bare_patches_per_s(amount))

    async def _bare_patches_per_s(self, amount: str) -> float:
        few = asyncio.Semaphore(mirror.AT_ONCE)
        resources = {"example.com/bare": amount, "example.com/loop": amount}
        body = {"status": dict.fromkeys(("capacity", "allocatable"), resources)}
        async with ApiServer(self.access, name="bench") as api:

            async def patch(name: str) -> None:
                async with few:
                    await api.patch(NODES, name, body, dict, sub="status")

            begin_s = time.monotonic()
            await asyncio.gather(*(patch(name_of(number)) for number in range(self.nodes)))
            return self.nodes / (time.monotonic() - begin_s)

    async def _make_nodes(self) -> None:
        few = asyncio.Semaphore(AT_ONCE)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
        status = {"capacity": SIZE, "allocatable": SIZE, "conditions": [ready]}
        async with ApiServer(self.access, name="bench") as api:

            async def make(name: str) -> None:
                async with few:
                    metadata = {"name": name, "annotations": FAKE}
                    await api.create(NODES, {"metadata": metadata, "status": status}, dict)
                    await api.patch(NODES, name, {"spec": {"taints": None}}, dict)

            await asyncio.gather(*(make(name_of(number)) for number in range(self.nodes)))

    def place(self, pods: int, *, load_aware: bool, limited: bool) -> Placed:
        """So many batch pods that wait, then a kube-scheduler: until all are bound that can be; then they are gone.

        Args:
            pods: how many.
            load_aware: with the extender; else by a kube-scheduler without it and its profile's other settings.
            limited: by the kube-scheduler's own default, 50 requests a second.

        """
        asyncio.run(self._make_pods(pods))
        program = Program("kube-scheduler", self.rig.folder / f"kube-scheduler-{time.monotonic_ns()}.log")

        def edit(config: Json) -> None:
            if not limited:
                config["clientConnection"] |= {"qps": 1_000, "burst": 2_000}
            if not load_aware:
                del config["extenders"], config["profiles"][0]["plugins"]

        cpu_s, begin_s = self.meter.cpu_s("scheduler"), time.monotonic()
        placed = asyncio.run(self._placed(pods, program, edit))
        placed.extender_cpu_s = self.meter.cpu_s("scheduler") - cpu_s
        placed.took_s = time.monotonic() - begin_s
        name = f"kube-scheduler {'with' if load_aware else 'without'} it"
        if limited:
            self.meter.end(KUBE_SCHEDULER, name)
        else:
            self.meter.drop(KUBE_SCHEDULER)
        program.stop()
        # Some hundred with each request: all of them at once take longer than one may.
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        while self.at.cluster.get(f"{path}?limit=1")["items"]:
            self.at.cluster.delete(f"{path}?limit={DELETED_AT_ONCE}")
        return placed

    async def _make_pods(self, pods: int) -> None:
        few, turn = asyncio.Semaphore(AT_ONCE), next(self._rounds)
        container = {"name": "main", "image": "none", "resources": {"requests": ASKED, "limits": ASKED}}
        spec = {"schedulerName": "koord-scheduler", "priorityClassName": "koord-batch", "containers": [container]}
        async with ApiServer(self.access, name="bench") as api:

            async def make(number: int) -> None:
                async with few:
                    # No name comes twice: kwok may delete a pod of the round before once more, by its name.
                    metadata = {"name": f"crunch-{turn}-{number}", "labels": {"koordinator.sh/qosClass": "BE"}}
                    await api.create(PODS, {"metadata": metadata, "spec": spec}, dict, namespace=self.namespace)

            await asyncio.gather(*(make(number) for number in range(pods)))

    async def _placed(self, pods: int, program: Program, edit: Any) -> Placed:
        clock, placed = SystemClock(), Placed(asked=pods)
        starting = asyncio.create_task(asyncio.to_thread(self.at.start, program, edit))
        while not program.running and not starting.done():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        self.meter.watch(KUBE_SCHEDULER, program.pid)
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(PATIENCE_S),
                ApiServer(self.access, name="bench") as api,
                aclosing(follow(api, PODS, dict[str, Any], namespace=self.namespace)) as telling,
            ):
                async for told in telling:
                    seen = told.items if isinstance(told, Whole) else [told.object] if isinstance(told, Changed) else []
                    for pod in seen:
                        placed.see(pod, clock.wall_ms())
                    if len(placed.bound) == pods:
                        break
        await starting
        await asyncio.sleep(CLOSING_S)  # the loop must live on to close a watch that was broken off
        return placed


@dataclass(slots=True)
class Placed:
    """Where pods were bound, and when it was seen."""

    asked: int
    bound: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Node and time by the pod's name."""
    extender_cpu_s: float = 0.0
    took_s: float = 0.0

    def see(self, pod: Json, now_ms: int) -> None:
        """A pod is so."""
        node = pod["spec"].get("nodeName")
        if node:
            self.bound.setdefault(pod["metadata"]["name"], (node, now_ms))

    @property
    def per_s(self) -> float:
        """Between the first tenth and the last: how it starts, and pods that wait at the end, are left out."""
        times = sorted(at_ms for _, at_ms in self.bound.values())
        few = len(times) // 10
        if len(times) < 2 * few + 2:
            return 0.0
        return (len(times) - 2 * few) / max(0.001, (times[-few - 1] - times[few]) / 1_000)


@contextlib.contextmanager
def colony(rig: Rig, nodes: int) -> Iterator[Colony]:
    """With the API server, a log, and nothing else yet.

    Raises:
        CannotRunError: this machine lacks Kubernetes' programs.

    """
    if (lack := lacks_api()) is not None:
        raise CannotRunError(str(lack))
    kafka = rig.kafka()
    folder = Path(tempfile.mkdtemp(prefix="colony-", dir=rig.folder))
    with scheduling(folder, started=False) as at:
        made = Colony(rig, at, kafka.bootstrap, nodes)
        made.meter.watch("Kafka", kafka.pid)
        made.meter.watch("kube-apiserver", at.cluster.api.pid)
        made.meter.watch("etcd", at.cluster.etcd.pid)
        try:
            yield made
        finally:
            made.close()
