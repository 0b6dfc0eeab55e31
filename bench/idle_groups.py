"""Figure: what `cpu.idle` gives a service beside batch work, on the best-effort tier and on each pod, against weights.

Real processes in real control groups, in the kubelet's layout. In each block every condition has one phase, with equal
arrivals, in an order of its own; a condition is compared with the others of its block alone.
"""

import json
import os
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.rig import CannotRunError, Rig
from bench.rows import Row, told
from slacktide.deploy.demo import busy, join, ls_worker
from slacktide.deploy.demo.conditions import spiky
from slacktide.deploy.demo.groups import KUBEPODS, OWN, Groups, NoGroupsError, PodGroup
from slacktide.deploy.demo.real import groups_here, this_machine
from slacktide.deploy.runtime import child_process

CONDITIONS = ("alone", "weights", "idle tier", "idle pods")
BLOCKS, PHASE_S, SETTLE_S, TAIL_S = 10, 6.0, 0.6, 0.6
WORKERS_A_CPU = 3
"""More than CPUs: two that are due may queue on one CPU while batch work holds the other."""
REQUEST_PART = 5
"""A request is this part of the demo's: 1 ms of CPU."""
TIER = f"{KUBEPODS}/besteffort"
BATCH = [PodGroup(uid=f"batch-{number}", tier="besteffort") for number in range(2)]
RESAMPLES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One condition of one block."""

    block: int
    condition: str
    p50_ms: float
    p99_ms: float
    requests: int
    busy_part: float
    """Of all CPUs, by the service and the batch work."""
    batch_cpus: float
    others_part: float
    """Of all CPUs, by whatever else ran."""


class Machine:
    """The service, its batch work, and where they are idle."""

    def __init__(self, groups: Groups, folder: Path) -> None:
        self._groups, self._play = groups, folder / "play.json"
        self._cpus = os.cpu_count() or 1
        self._service = PodGroup(uid="service", tier="burstable", request_milli=self._cpus * 500)
        groups.make([self._service, *BATCH], this_machine().capacity_milli)
        self._write(OWN, "cpu.shares", "262144", "cpu.weight", "10000")  # what runs beside hardly counts
        units, joined = max(1, ls_worker.calibrate() // REQUEST_PART), groups.join_files(self._service)
        self._workers = [
            child_process.popen(
                join.command(ls_worker.__name__, str(units), str(self._play), str(number), join=joined), stdout=-1
            )
            for number in range(WORKERS_A_CPU * self._cpus)
        ]
        for worker in self._workers:
            os.set_blocking(worker.stdout.fileno(), False)
        time.sleep(1)

    def phase(self, block: int, condition: str) -> Phase:
        """Measure one; the same block has the same arrivals."""
        idle = {"idle tier": [TIER], "idle pods": [pod.path for pod in BATCH]}.get(condition, [])
        with self._batch(idle, BATCH if condition != "alone" else []):
            return self._measured(block, condition)

    @contextmanager
    def _batch(self, idle: list[str], pods: list[PodGroup]) -> Iterator[None]:
        for group in idle:
            self._write(group, "cpu.idle", "1", "cpu.idle", "1")
        started = [
            child_process.popen(join.command(busy.__name__, join=self._groups.join_files(pod)))
            for pod in pods
            for _ in range(-(-self._cpus // len(pods)))
        ]
        try:
            yield
        finally:
            for process in started:
                process.kill()
                process.wait()
            for group in idle:  # with the kernel's own weight until the kubelet's is written again
                self._write(group, "cpu.idle", "0", "cpu.idle", "0")
                self._write(group, "cpu.shares", "2", "cpu.weight", "1")

    def _measured(self, block: int, condition: str) -> Phase:
        load = spiky(block, PHASE_S, quiet_s=SETTLE_S + 0.3, tail_s=TAIL_S)
        rates = [(seconds, rate * REQUEST_PART) for seconds, rate in load.rates(self._cpus * 1000, len(self._workers))]
        start_s = time.monotonic() + 0.3
        new = self._play.with_suffix(".new")
        new.write_text(json.dumps({"start_s": start_s, "seed": block, "phases": rates}))
        new.replace(self._play)
        begin_s, end_s = start_s + SETTLE_S + 0.3, start_s + SETTLE_S + 0.3 + PHASE_S
        time.sleep(begin_s - time.monotonic())
        before = self._used()
        time.sleep(end_s - time.monotonic())
        spent = {name: after - before[name] for name, after in self._used().items()}
        time.sleep(TAIL_S + ls_worker.REPORT_EVERY_S)
        late = sorted(ms for at_s, ms in self._served() if begin_s <= at_s < end_s)
        whole_s = spent["wall"] * self._cpus
        return Phase(
            block=block,
            condition=condition,
            p50_ms=late[len(late) // 2],
            p99_ms=late[len(late) * 99 // 100],
            requests=len(late),
            busy_part=spent["ours"] / whole_s,
            batch_cpus=spent["batch"] / spent["wall"],
            others_part=max(0.0, spent["machine"] - spent["ours"]) / whole_s,
        )

    def _used(self) -> dict[str, float]:
        times = psutil.cpu_times()
        machine = sum(times) - times.idle - times.iowait - times.guest - times.guest_nice - times.steal
        return {
            "wall": time.monotonic(),
            "machine": machine,
            "ours": self._groups.cpu_s(OWN),
            "batch": self._groups.cpu_s(TIER),
        }

    def _served(self) -> Iterator[tuple[float, float]]:
        for worker in self._workers:
            for line in (worker.stdout.read() or b"").splitlines():
                yield from json.loads(line)

    def _write(self, group: str, v1_file: str, v1_text: str, v2_file: str, v2_text: str) -> None:
        v1 = self._groups.version == 1
        folder = self._groups.mount / "cpu" / group if v1 else self._groups.mount / group
        (folder / (v1_file if v1 else v2_file)).write_text(v1_text if v1 else v2_text)


def measure(rig: Rig) -> list[Row]:
    """Some minutes; the kernel needs ``cpu.idle`` (5.15 or newer), and we root."""
    try:
        groups = groups_here()
    except NoGroupsError as error:
        raise CannotRunError(str(error)) from error
    phases: list[Phase] = []
    try:
        machine = Machine(groups, rig.folder)
        machine.phase(0, "alone")  # the first one warms caches
        for block in range(1, 1 + (1 if rig.brief else BLOCKS)):
            order = random.Random(block).sample(CONDITIONS, len(CONDITIONS))
            phases += [machine.phase(block, condition) for condition in order]
            rig.say(f"idle-groups: block {block}")
    finally:
        groups.close()
    return [_row(phases, condition) for condition in CONDITIONS]


def _row(phases: list[Phase], condition: str) -> Row:
    own = [one for one in phases if one.condition == condition]

    def middle(name: str) -> float:
        return statistics.median(getattr(one, name) for one in own)

    said = [f"p50 {middle('p50_ms'):.2f} ms, p99 {middle('p99_ms'):.1f} ms"]
    for other in CONDITIONS[:2]:
        if condition not in {other, "alone"}:
            low, mid, high = ratio(phases, condition, other)
            said.append(f"p99 {mid:.2f} [{low:.2f}-{high:.2f}] x {other}")
    said.append(f"{middle('busy_part'):.0%} busy, batch {middle('batch_cpus'):.2f} CPUs")
    said.append(f"others {max(one.others_part for one in own):.0%} at most, {middle('others_part'):.0%} usually")
    records = [{name: getattr(one, name) for name in Phase.__slots__} for one in own]
    return told(f"service beside batch: {condition}", "; ".join(said), n=f"{len(own)} blocks", phases=records)


def ratio(phases: list[Phase], condition: str, other: str) -> tuple[float, float, float]:
    """The median over blocks of p99 by that of the same block, with its 90% interval by a bootstrap over blocks."""
    p99 = {(one.block, one.condition): one.p99_ms for one in phases}
    by_block = [p99[block, condition] / p99[block, other] for block in sorted({one.block for one in phases})]
    dice = random.Random(0)
    drawn = sorted(statistics.median(dice.choices(by_block, k=len(by_block))) for _ in range(RESAMPLES))
    return drawn[RESAMPLES // 20], statistics.median(by_block), drawn[-RESAMPLES // 20]
