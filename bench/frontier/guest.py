"""Figure: weights against `cpu.idle` on cgroup v2, in a kernel in QEMU: nginx beside video encoding.

The guest translates each instruction, and is ten times slower than the machine. So no agent runs in it: this program
sets ``cpu.idle`` itself. Phases are kept in a file of their own, and a run goes on with what is missing.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path

import psutil

from bench.frontier.conditions import ALONE, CONDITIONS, Condition
from bench.frontier.machine import Machine, Served
from bench.frontier.measure import BLOCKS, BRIEF_S, rows
from bench.frontier.records import append, phase_of, quantile_ms, read
from bench.frontier.services import SERVICES
from bench.process import environment
from bench.rig import CannotRunError, Rig
from bench.rows import Row
from slacktide.deploy.demo.backend import Machine as SizedMachine
from slacktide.deploy.demo.pods import DemoPod

RUNNER = Path(__file__).parents[2] / "tests/kernel/cgroup2-qemu"
COMPARED = (ALONE, "weights", "weights, idle")
KIND, PHASE_S = "encode", 40.0
"""Twice as long as on the machine: there are fewer requests."""
WEIGHT = "1"
"""As the kubelet gives it to best-effort pods."""


class Bare(Machine):
    """Without Slacktide's parts."""

    def _start_parts(self, pods: list[DemoPod], machine: SizedMachine) -> None:
        """None."""

    def own_s(self) -> float:
        """None is used."""
        return 0.0

    def in_force(self, condition: Condition) -> None:
        """Make the best-effort pods idle, or give them their weight."""
        for pod in self.batch_pods["besteffort"]:
            group = self.groups.mount / pod.group.path
            (group / "cpu.idle").write_text(str(int(condition.idle)))
            if not condition.idle:
                (group / "cpu.weight").write_text(WEIGHT)


def measure(rig: Rig) -> list[Row]:
    """As much as fits into the rig's minutes, outside of the guest.

    Raises:
        CannotRunError: the guest ended early.

    """
    file = rig.records if rig.records is not None else rig.folder / "frontier-v2.jsonl"
    have = {(phase.block, phase.condition) for phase in read(file)}
    missing = [one for one in _plan(1 if rig.brief else BLOCKS) if one not in have]
    seconds = BRIEF_S if rig.brief else PHASE_S
    task = {"plan": missing, "seconds": seconds, "minutes": rig.minutes}
    command = [sys.executable, str(RUNNER), sys.executable, "-m", __name__, json.dumps(task)]
    printed = []
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as guest:
        spent = _spent(guest.pid)
        for line in guest.stdout or ():
            if not line.startswith("{"):
                printed.append(line)
                continue
            before, spent = spent, _spent(guest.pid)
            others = (spent["others"] - before["others"]) / (spent["wall"] - before["wall"]) / psutil.cpu_count()
            phase = replace(phase_of(json.loads(line)), others_part=round(max(0.0, others), 4))
            append(file, phase)
            rig.say(
                f"frontier-v2: block {phase.block}, {phase.condition}: p99 {quantile_ms([phase], 0.99):.0f} ms, "
                f"{phase.busy_part:.0%} busy, others on the machine {phase.others_part:.0%}"
            )
    if guest.returncode:
        raise CannotRunError("".join(printed[-20:]) or f"exit code {guest.returncode}")
    return rows(read(file))


def _plan(blocks: int) -> Iterator[tuple[int, str]]:
    """Block and condition, in the order in which they run."""
    for block in range(1, blocks + 1):
        for condition in random.Random(block).sample(COMPARED, len(COMPARED)):
            yield block, condition


def _spent(pid: int) -> dict[str, float]:
    """CPU seconds that this machine spent on other things than the guest."""
    times = psutil.cpu_times()
    machine = sum(times) - times.idle - times.iowait - times.guest - times.guest_nice - times.steal
    own_s = 0.0
    guest = psutil.Process(pid)
    for one in [guest, *guest.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            own = one.cpu_times()
            own_s += own.user + own.system
    return {"wall": time.monotonic(), "others": machine - own_s}


def main(task: dict) -> None:
    """Inside the guest: a line of JSON a phase."""
    until_s = time.monotonic() + task["minutes"] * 60
    conditions = {one.name: one for one in CONDITIONS}
    nginx = next(one for one in SERVICES if one.name == "nginx")
    with Rig(virtual=False) as rig, Bare(rig) as machine, closing(Served(machine, rig, nginx)) as served:
        for block, name in task["plan"]:
            if time.monotonic() < until_s:
                phase = served.phase(block, conditions[name], KIND, task["seconds"])
                sys.stdout.write(json.dumps(asdict(phase)) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
