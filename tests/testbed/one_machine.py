"""A machine for ``slacktide up`` without root: a virtual node, driven in real time, and the stack on it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from slacktide.agents.node.cgroup import CgroupKernel
from slacktide.agents.node.interfaces import Reading
from slacktide.deploy.virtual import machine as model
from slacktide.deploy.virtual.files import Projection
from slacktide.schemas.connection import Cluster
from testbed.background import Background
from testbed.filled import read_filled
from testbed.history.records import Shown
from testbed.policies import config_map

SLACKTIDE = str(Path(sys.executable).with_name("slacktide"))
NODE = "alpha"
CPUS, MEM_BYTES = 8, 32 << 30
TICK_S = 0.05
T = TypeVar("T")


def eventually(ask: Callable[[], T], within_s: float = 60.0, *, every_s: float = 0.05) -> T:
    """Ask until the answer is true; the last answer, true or not."""
    until_s = time.monotonic() + within_s
    while not (answer := ask()) and time.monotonic() < until_s:
        time.sleep(every_s)
    return answer


class _StillKernel(CgroupKernel):
    """Reads all of a virtual node at one moment, as a kernel's groups are to within microseconds."""

    def __init__(self, node: VirtualNode, *given: Any) -> None:
        super().__init__(*given)
        self._node_still = node.still

    def read(self, mono_ns: int) -> Reading:
        with self._node_still:
            return super().read(mono_ns)


class VirtualNode(Background):
    """A service that uses little and batch work that would eat everything; files in a folder."""

    def __init__(self, folder: Path, name: str = NODE) -> None:
        super().__init__()
        self.name = name
        self.shown: list[Shown] = []
        """Every look at the best-effort group's quota."""
        self.machine = model.Machine(cpus=CPUS, mem_bytes=MEM_BYTES)
        self.machine.system.demand_milli = 200
        self.service = self.machine.add_pod("uid-service", "Burstable", request_milli=4000)
        self.service.demand_milli = 500
        for number in range(2):
            self.machine.add_pod(f"uid-batch-{number}", "BestEffort").demand_milli = 1000 * CPUS
        self._files = Projection(self.machine, folder / "machine")
        self.inventory = folder / "inventory.yaml"
        self._described = inventory(name)
        self.inventory.write_text(json.dumps(self._described))
        self.policy = folder / "policy.yaml"
        self.policy.write_text(json.dumps(policy()))
        self._changes: deque[Callable[[], None]] = deque()
        """Asked for by others than the thread that drives the machine."""
        self._processes: deque[tuple[str, int]] = deque()
        """Groups, and the process that is to be seen in each."""
        self._describing = threading.Lock()
        self.still = threading.Lock()
        """Held while its files change: who reads meanwhile sees the node after a step, and its pods before it."""

    @property
    def arguments(self) -> list[str]:
        return [
            *("--node-name", self.name, "--cgroup-mount", str(self._files.cgroup_mount)),
            *("--proc-mount", str(self._files.proc_mount), "--kubepods", model.KUBEPODS),
            *("--inventory", str(self.inventory)),
        ]

    def kernel(self, state: Path) -> CgroupKernel:
        """Its groups, as an agent that keeps its state there has them."""
        return _StillKernel(self, self._files.cgroup_mount, self._files.proc_mount, model.KUBEPODS, state)

    @property
    def quota_us(self) -> int | None:
        """The best-effort group's limit, from its file; None: unlimited."""
        text = (self._files.cgroup_mount / model.BEST_EFFORT / "cpu.max").read_text().split()[0]
        return None if text == "max" else int(text)

    def own_service(self, deployment: str) -> None:
        """The service's pod is of this Deployment from now on."""
        owner = {"kind": "ReplicaSet", "name": f"{deployment}-5d4f8c7b9", "controller": True}
        with self._describing:
            metadata = next(one["metadata"] for one in self._described["items"] if one["kind"] == "Pod")
            metadata |= {"labels": {"pod-template-hash": "5d4f8c7b9"}, "ownerReferences": [owner]}
            self._describe()

    def stall_service(self, cpu_us: int, mem_us: int) -> None:
        """How long the service waited in all, by files that other virtual pods have not."""
        group = self._files.cgroup_mount / self.service.path
        for kind, us in (("cpu", cpu_us), ("memory", mem_us)):
            part = group / f"{kind}.part"
            part.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n")
            part.replace(group / f"{kind}.pressure")

    def add_batch(self, name: str, *, cpu_milli: int = 300, mem_bytes: int = 0, pid: int = 0) -> None:
        """A best-effort pod comes, with a process if one is named; the node's description names it from now on."""

        def start() -> None:
            pod = self.machine.add_pod(f"uid-{name}", "BestEffort")
            pod.demand_milli, pod.mem_bytes = cpu_milli, mem_bytes
            if pid:
                self._processes.append((pod.path, pid))

        self._changes.append(start)
        with self._describing:
            self._described["items"].append(batch_pod(self.name, name))
            self._describe()

    def remove_batch(self, name: str) -> bool:
        """One that came goes; whether it was there."""

        def end() -> None:
            if f"uid-{name}" in self.machine.pods:
                self.machine.remove_pod(f"uid-{name}")

        with self._describing:
            items = self._described["items"]
            left = [one for one in items if one["metadata"]["name"] != name]
            there = len(left) < len(items)
            self._described["items"] = left
            self._describe()
        self._changes.append(end)
        return there

    def pod_names(self) -> list[str]:
        with self._describing:
            return [one["metadata"]["name"] for one in self._described["items"] if one["kind"] == "Pod"]

    def _describe(self) -> None:
        part = self.inventory.with_suffix(".part")
        part.write_text(json.dumps(self._described))
        part.replace(self.inventory)

    def _run(self) -> None:
        last_s = time.monotonic()
        while not self._over.wait(TICK_S):
            # After a stall of this thread, time is lost: all at once would be a peak of use that no pod had.
            dt_ms = round(min(time.monotonic() - last_s, 4 * TICK_S) * 1000)
            last_s = time.monotonic()
            begun_ms = _wall_ms()
            with self.still:
                self._files.read_back()
                self._look(begun_ms)
                while self._changes:
                    self._changes.popleft()()
                self.machine.step(dt_ms)
                self._files.write_files()
            while self._processes:
                group, pid = self._processes.popleft()
                (self._files.cgroup_mount / group / "cgroup.procs").write_text(f"{pid}\n")

    def _look(self, begun_ms: int) -> None:
        self.shown.append(Shown(begun_ms, _wall_ms(), self.machine.best_effort.quota_us))


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def batch_pod(node: str, name: str) -> dict:
    """A best-effort pod that asks for batch resources."""
    amounts = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "1Gi"}
    labels = {"koordinator.sh/qosClass": "BE"}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running", "qosClass": "BestEffort"},
    }


def inventory(node: str = NODE) -> dict:
    found = read_filled("node.yaml", node=node, cpus=CPUS, mem_bytes=MEM_BYTES)
    found["items"] += [batch_pod(node, "batch-0"), batch_pod(node, "batch-1")]
    return found


def policy(**threshold: object) -> dict:
    """The ConfigMap, with further fields of resource-threshold-config's clusterStrategy."""
    strategy = {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"} | threshold
    room = {"enable": True, "metricAggregateDurationSeconds": 10}
    return config_map(colocation=room, threshold={"clusterStrategy": strategy})


class Up:
    """``slacktide up`` as a process, its JSON logs in a file; ``through``: a command that runs it."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        through: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
        console: bool = False,
    ) -> None:
        self._log = folder / "up.log"
        self._log.touch()
        self.started_s = time.monotonic()
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *through,
                    *(SLACKTIDE, "up", "--state-folder", str(folder / "state"), "--metrics-port", "0"),
                    *("--log-format", "json", *([] if console else ["--no-console"]), *arguments),
                ],
                stdin=stdin,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        children = self.children()
        self.process.kill()
        self.process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    @property
    def lines(self) -> list[dict]:
        whole, _, _ = self._log.read_text().rpartition("\n")  # a line may be half written
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    @property
    def messages(self) -> list[str]:
        return [line["message"] for line in self.lines]

    def logged(self, pattern: str, *, process: str = "up", times: int = 1) -> re.Match[str] | None:
        found = [re.search(pattern, line["message"]) for line in self.lines if line["process"] == process]
        matches = [match for match in found if match is not None]
        return matches[-1] if len(matches) >= times else None

    def wait_logged(
        self, pattern: str, *, within_s: float = 60.0, process: str = "up", times: int = 1
    ) -> re.Match[str]:
        found = eventually(lambda: self.logged(pattern, process=process, times=times), within_s)
        assert found is not None, f"{process} did not log {pattern!r} within {within_s:g} s:\n{self.text()}"
        return found

    def text(self) -> str:
        return self._log.read_text()

    @property
    def bootstrap(self) -> str:
        return self.wait_logged(r"listens on (\S+)")[1]

    @property
    def cluster(self) -> Cluster:
        return Cluster(self.bootstrap)

    def url(self, part: str) -> str:
        return self.wait_logged(rf"^{part}: (http\S+)")[1]

    def children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def part(self, name: str) -> psutil.Process:
        """The process of ``agent``, ``stream`` or ``broker``."""
        word = {"broker": "--listener-url"}.get(name, name)
        return next(child for child in self.children() if word in child.cmdline())

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        began_s = time.monotonic()
        self.process.send_signal(how)
        code = self.process.wait(60)
        return code, time.monotonic() - began_s


@contextlib.contextmanager
def one_machine(folder: Path, *arguments: str, policy: bool = True, **more: Any) -> Iterator[tuple[VirtualNode, Up]]:
    (folder / "node").mkdir()
    with VirtualNode(folder / "node") as node:
        given = ["--policy", str(node.policy)] if policy else []
        with Up(folder, *node.arguments, *given, *arguments, **more) as up:
            yield node, up


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
