"""This machine with a service, batch work in one of its forms, and Slacktide's own parts."""

import asyncio
import contextlib
import datetime as dt
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil

from bench.frontier import batch, generator, load
from bench.frontier.conditions import CONDITIONS, Condition
from bench.frontier.records import Phase, bucket
from bench.frontier.services import Service
from bench.process import SLACKTIDE, Running, environment
from bench.rig import CannotRunError, Rig
from slacktide.deploy.demo import join
from slacktide.deploy.demo.backend import Machine as SizedMachine
from slacktide.deploy.demo.groups import KUBEPODS, OWN, Groups
from slacktide.deploy.demo.pods import NAMESPACE, DemoPod, inventory_yaml
from slacktide.deploy.demo.real import MOUNT, groups_here, this_machine
from slacktide.deploy.runtime import child_process
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.service import ServiceSlope
from slacktide.schemas.topics import SERVICE_SLOPE
from slacktide.streams.kafka import Sender
from slacktide.streams.records import Out
from testbed.brokers import free_port

NODE = "frontier"
LEAD_S = 6.0
"""Before a phase is measured: a policy is read, limits rise and fall, batch work gets going."""
CALIBRATE_S = 3.0
CALIBRATE_PER_S = 60.0
STARTED_S = 10.0
LISTENS_WITHIN_S = 120.0
"""A service, also in a guest that is many times slower."""
AWAKE = "while True: pass"


class Machine:
    """One run: the service changes, the rest stays."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.cpus = os.cpu_count() or 1
        capacity_milli = self.cpus * 1000
        self.service_pod = DemoPod(
            node=NODE, name="service", kind="service", cpu_milli=capacity_milli // 2, owner="service"
        )
        self.batch_pods = {
            "burstable": [_pod("burstable", number, capacity_milli) for number in range(2)],
            "besteffort": [_pod("besteffort", number, capacity_milli) for number in range(2)],
        }
        self._policy = rig.folder / "frontier-policy.yaml"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.groups = groups_here()
        self._stack.callback(self.groups.close)
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _begin(self) -> None:
        pods = [self.service_pod, *self.batch_pods["burstable"], *self.batch_pods["besteffort"]]
        machine = this_machine()
        self.groups.make([pod.group for pod in pods], machine.capacity_milli)
        self._start_parts(pods, machine)

    def _start_parts(self, pods: list[DemoPod], machine: SizedMachine) -> None:
        inventory = self._rig.folder / "frontier-inventory.yaml"
        inventory.write_text(inventory_yaml([NODE], machine.capacity_milli, machine.mem_bytes, pods))
        self._policy.write_text(CONDITIONS[0].policy_yaml())
        command = [SLACKTIDE, "up", "--node-name", NODE, "--inventory", str(inventory), "--policy", str(self._policy)]
        command += ["--cgroup-mount", str(MOUNT), "--kubepods", KUBEPODS, "--metrics-port", str(free_port())]
        command += ["--no-console"]  # what is measured is the loop
        command += ["--state-folder", str(self._rig.folder / "frontier-state")]
        self.up = self._stack.enter_context(Running(self._rig, "up", command))
        time.sleep(STARTED_S)
        self.up.check()

    def own_s(self) -> float:
        """CPU seconds of Slacktide's own parts so far."""
        spent = 0.0
        for one in [self.up.process, *self.up.process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = one.cpu_times()
                spent += times.user + times.system
        return spent

    def in_force(self, condition: Condition) -> None:
        """Publish the condition's policy."""
        new = self._policy.with_suffix(".new")
        new.write_text(condition.policy_yaml())
        new.replace(self._policy)

    def learned(self, slope_permille: int) -> None:
        """Tell the node what was learned of its service, as the learner would."""
        service = f"{NAMESPACE}/{self.service_pod.owner}"
        slope = ServiceSlope(
            service=service, slope_permille=slope_permille, observed_ms=time.time_ns() // 1_000_000, partition=0,
            folded_to=0,
        )  # fmt: skip
        asyncio.run(_sent(self._bootstrap(), Out(topic=SERVICE_SLOPE.name, key=service.encode(), value=encode(slope))))

    def _bootstrap(self) -> Cluster:
        """Return where the stack's broker listens."""
        for one in self.up.process.children(recursive=True):
            with contextlib.suppress(psutil.Error, ValueError):
                line = one.cmdline()
                return Cluster(line[line.index("--listener-url") + 1].removeprefix("tcp://"))
        raise CannotRunError("the stack has no broker")

    @contextlib.contextmanager
    def batch(self, condition: Condition, kind: str) -> Iterator[list[Path]]:
        """Batch work in its pods, with the files that count what it does; or loops that keep the CPUs awake."""
        folder = self._rig.folder
        if condition.awake:
            self._awake(1)
            pod, program = self.batch_pods["besteffort"][0], [sys.executable, "-c", AWAKE]
            commands = [(pod, program)] * self.cpus
            counters: list[Path] = []
        else:
            pods = self.batch_pods.get(condition.batch, [])
            counters = [folder / f"{pod.name}.count" for pod in pods]
            commands = [
                (pod, [sys.executable, "-m", batch.__name__, kind, str(counter)])
                for pod, counter in zip(pods, counters, strict=True)
            ]
        for counter in counters:
            counter.write_text("0")
        started = [self.start(pod, command) for pod, command in commands]
        try:
            yield counters
        finally:
            for group in {pod.group.path for pod, _ in commands}:
                _kill_all(self.groups, group)
            for process in started:
                process.wait()
            if condition.awake:
                self._awake(0)

    def start(self, pod: DemoPod, command: list[str]) -> subprocess.Popen[bytes]:
        """Run a program in a pod's group."""
        joined = [str(file) for file in self.groups.join_files(pod.group)]
        launcher = [sys.executable, "-m", join.__name__, *joined, "--", *command]
        return child_process.popen(launcher, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _awake(self, idle: int) -> None:
        tier = f"{KUBEPODS}/besteffort"
        mount = MOUNT / "cpu" if self.groups.version == 1 else MOUNT
        (mount / tier / "cpu.idle").write_text(str(idle))
        if not idle:  # the kernel's own weight until the kubelet's is written again
            (mount / tier / ("cpu.shares" if self.groups.version == 1 else "cpu.weight")).write_text(
                "2" if self.groups.version == 1 else "1"
            )


class Served:
    """A running service with its generator."""

    def __init__(self, machine: Machine, rig: Rig, service: Service) -> None:
        self._machine, self.service = machine, service
        port = free_port()
        folder = rig.folder / service.name
        folder.mkdir(exist_ok=True)
        self._process = machine.start(machine.service_pod, service.command(port, folder))
        _wait_for(port, self._process)
        command = [sys.executable, "-m", generator.__name__, str(port), service.request]
        self._generator = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._generator.stdout.readline() != b"ready\n":
            raise CannotRunError(f"{service.name}: no answer on port {port}")
        self._cost_s = self._calibrate()

    def _calibrate(self) -> float:
        """CPU seconds of a request."""
        self._ask(time.monotonic() + 0.1, 0, [(1.0, CALIBRATE_PER_S)])
        before_s = self._machine.groups.cpu_s(self._machine.service_pod.group.path)
        self._ask(time.monotonic() + 0.1, 1, [(CALIBRATE_S, CALIBRATE_PER_S)])
        spent_s = self._machine.groups.cpu_s(self._machine.service_pod.group.path) - before_s
        return spent_s / len(self._answer)

    def _ask(self, start_s: float, seed: int, phases: list[tuple[float, float]]) -> None:
        self._send(start_s, seed, phases)
        self._read()

    def _send(self, start_s: float, seed: int, phases: list[tuple[float, float]]) -> None:
        play = {"start_s": start_s, "seed": seed, "phases": phases}
        self._generator.stdin.write(json.dumps(play).encode() + b"\n")
        self._generator.stdin.flush()

    def _read(self) -> None:
        line = self._generator.stdout.readline()
        if not line:
            raise CannotRunError(f"{self.service.name}: the load generator ended, exit code {self._generator.wait()}")
        self._answer = json.loads(line)

    def phase(self, block: int, condition: Condition, kind: str, seconds: float) -> Phase:
        """Measure one condition; equal blocks have equal arrivals."""
        machine, cpus = self._machine, os.cpu_count() or 1
        machine.in_force(condition)
        rates = [(length, part * cpus / self._cost_s) for length, part in load.shape(block, seconds, LEAD_S)]
        with machine.batch(condition, kind) as counters:
            start_s = time.monotonic() + 0.2
            self._send(start_s, block, rates)
            time.sleep(start_s + LEAD_S - time.monotonic())
            before, done = self._used(), _counted(counters)
            time.sleep(max(0.0, start_s + LEAD_S + seconds - time.monotonic()))
            spent = {name: value - before[name] for name, value in self._used().items()}
            done = _counted(counters) - done
            self._read()
        late = Counter(bucket(ms) for at_s, ms in self._answer if LEAD_S <= at_s < LEAD_S + seconds)
        whole_s = spent["wall"] * cpus
        return Phase(
            service=self.service.name,
            batch=kind,
            block=block,
            condition=condition.name,
            seconds=seconds,
            latencies=dict(sorted(late.items())),
            busy_part=round((spent["ours"] - (spent["batch"] if condition.awake else 0.0)) / whole_s, 4),
            service_cpus=round((spent["ours"] - spent["batch"]) / spent["wall"], 4),
            batch_cpus=0.0 if condition.awake else round(spent["batch"] / spent["wall"], 4),
            others_part=round(max(0.0, spent["machine"] - spent["ours"] - spent["own"] - spent["load"]) / whole_s, 4),
            own_part=round(spent["own"] / whole_s, 4),
            work_per_s=round(done / spent["wall"], 3),
            at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        )

    def _used(self) -> dict[str, float]:
        times = psutil.cpu_times()
        groups, load_times = self._machine.groups, psutil.Process(self._generator.pid).cpu_times()
        service_s = groups.cpu_s(self._machine.service_pod.group.path)
        ours_s = groups.cpu_s(OWN)
        return {
            "wall": time.monotonic(),
            "machine": sum(times) - times.idle - times.iowait - times.guest - times.guest_nice - times.steal,
            "ours": ours_s,
            "batch": ours_s - service_s,
            "own": self._machine.own_s(),
            "load": load_times.user + load_times.system,
        }

    def close(self) -> None:
        """End generator and service."""
        self._generator.kill()
        self._generator.wait()
        _kill_all(self._machine.groups, self._machine.service_pod.group.path)
        self._process.wait()


def _pod(kind: str, number: int, capacity_milli: int) -> DemoPod:
    return DemoPod(node=NODE, name=f"{kind}-{number}", kind=kind, cpu_milli=capacity_milli // 4)


async def _sent(bootstrap: Cluster, out: Out) -> None:
    sender = Sender(bootstrap, client_id="frontier")
    await sender.connect([out.topic])
    try:
        await sender.send_each([out])
    finally:
        await sender.close()


def _kill_all(groups: Groups, group: str) -> None:
    """End all processes of a pod's group: what it started itself, too."""
    file = (groups.mount / "cpu" if groups.version == 1 else groups.mount) / group / "main" / "cgroup.procs"
    until_s = time.monotonic() + 5
    while (pids := file.read_text().split()) and time.monotonic() < until_s:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        time.sleep(0.02)


def _counted(counters: list[Path]) -> int:
    return sum(int(file.read_text() or 0) for file in counters)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + LISTENS_WITHIN_S
    while time.monotonic() < until_s and process.poll() is None:
        for one in psutil.net_connections("tcp"):
            if one.laddr and one.laddr.port == port and one.status == psutil.CONN_LISTEN:
                return
        time.sleep(0.05)
    raise CannotRunError(f"nothing listens on port {port}: exit code {process.poll()}")
