"""Figure: what early reclaim wins where a best-effort pod leaks memory, in a kernel with cgroup v2 in QEMU.

The agent runs in the guest; stream worker and embedded broker run outside. In each block every condition has a leak
that ends in a peak and one without end, in an order of its own. Episodes are kept in ``--records``, and a run goes on
with what is missing.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from bench import leak_guest
from bench.process import SLACKTIDE, Slacktide, environment
from bench.rig import CannotRunError, Rig, wait
from bench.rows import Row, judged, told
from slacktide.deploy.demo.groups import KUBEPODS
from slacktide.deploy.demo.pods import DemoPod, inventory_yaml
from testbed import rungs
from testbed.cluster.guest import LOGS, Guest, GuestProgram, ScriptError

NODE, CPUS = "leak", 2
BLOCKS = 3
EVICT_PCT, EARLY_PCT, HIGH_PCT = 70, 60, 69
SERVICE_PART, CACHE_PART, PEAK_PART, SWAP_PART, RATE_PART = 0.36, 0.10, 0.22, 0.19, 0.0061
"""Of the guest's memory. The leak, each second: 50 MB/s on a node of 8.2 GB."""
FILE_MIB, FILE_MIB_MAX, DISK_MIB = 400, 1024, 1024
PEAK_S_MAX, END_S_MAX = 60, 75
STARTED_S, POLICY_S, AGENT_S, SCRIPT_S = 20.0, 5.0, 300.0, 600.0
MODULES = f"PYTHONPATH={environment()['PYTHONPATH']}"
STALL_PERMILLE_MAX = 1
"""A service that waits for memory for more of the time is stalled."""
MIB = 1 << 20
KINDS = ("peak", "endless")
PODS = tuple(product(("cache", "leak"), KINDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What is done about a leak."""

    name: str
    early: bool = False
    swap: bool = False
    """Whether the node has swap that best-effort pods may use; a kubelet allows none."""
    high: bool = False
    """Whether the best-effort tier has a ``memory.high`` just below the eviction threshold; no part sets it."""


TODAY = Condition(name="evict at 70%")
CONDITIONS = (
    TODAY,
    Condition(name="early reclaim, no swap", early=True),
    Condition(name="early reclaim, swap", early=True, swap=True),
    Condition(name="memory.high on the tier, no swap", high=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One leak."""

    block: int
    condition: str
    kind: str
    found: dict[str, Any]
    """What `leak_guest` printed."""

    @property
    def stall_permille(self) -> float:
        """How long the service waited for memory."""
        return self.found["ls_mem_some_us"] / self.found["seconds"] / 1000


def measure(rig: Rig) -> list[Row]:
    """All episodes that are missing: about half an hour.

    Raises:
        CannotRunError: this machine lacks QEMU or a disk for it, or the guest failed.

    """
    if (lack := rungs.lacks_qemu()) is not None:
        raise CannotRunError(f"lacks {lack}")
    if not list((rungs.cache() / "cloud-kernel").glob("lib/modules/**/virtio_blk.ko")):
        raise CannotRunError("lacks QEMU's disk; to get it: tests/testbed/setup cloud-kernel")
    file = rig.records if rig.records is not None else rig.folder / "leak.jsonl"
    plan = list(_plan(1 if rig.brief else BLOCKS))
    have = {(one.block, one.condition) for one in _read(file)}
    with ExitStack() as stack:
        node = Node(rig, stack, plan)
        for block, condition in plan:
            if (block, condition.name) in have:
                continue
            for episode in node.episodes(block, condition):
                with file.open("a") as lines:
                    lines.write(json.dumps(asdict(episode)) + "\n")
                rig.say(f"leak: block {block}, {condition.name}, {episode.kind}: {_text([episode])}")
    return rows(_read(file))


def _plan(blocks: int) -> Iterator[tuple[int, Condition]]:
    for block in range(1, blocks + 1):
        yield from ((block, condition) for condition in random.Random(block).sample(CONDITIONS, len(CONDITIONS)))


def _read(file: Path) -> list[Episode]:
    return [Episode(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


class Node:
    """A guest with an agent, and outside of it what an agent needs."""

    def __init__(self, rig: Rig, stack: ExitStack, plan: Sequence[tuple[int, Condition]]) -> None:
        self._rig, self._metrics_port = rig, 9464
        self._policy, inventory = rig.folder / "leak-policy.yaml", rig.folder / "leak-inventory.yaml"
        self._file = _sparse(rig.folder / "leak-file", FILE_MIB_MAX)
        self._service = DemoPod(node=NODE, name="service", kind="service", cpu_milli=CPUS * 500)
        broker = stack.enter_context(rig.embedded())
        self._guest = Guest(rig.folder, disk=_sparse(rig.folder / "leak-disk", DISK_MIB))
        self._guest.start([int(broker.bootstrap.rpartition(":")[2])])
        stack.callback(self._guest.stop)
        self._guest.await_boot()
        self._mem_bytes = int(self._sh("awk '/MemTotal/ {print $2}' /proc/meminfo")) * 1024
        pods = [_pod(*at, kind, role) for at in plan for role, kind in PODS]
        inventory.write_text(inventory_yaml([NODE], CPUS * 1000, self._mem_bytes, [self._service, *pods]))
        self._policy.write_text(_policy_yaml(TODAY))
        shared = ["--bootstrap", str(broker.bootstrap), "--node-name", NODE, "--inventory", str(inventory)]
        publish = ["--policy", str(self._policy), "--state-folder", str(rig.folder / "leak-publish")]
        self._parts = [
            stack.enter_context(Slacktide(rig, "publish", *shared, *publish)),
            stack.enter_context(Slacktide(rig, "stream", *shared[:2], "--session-timeout", "10")),
        ]
        self._inside(capacity_milli=CPUS * 1000)
        agent = [SLACKTIDE, "agent", *shared, "--kubepods", KUBEPODS, "--state-folder", "/run/agent"]
        agent += ["--metrics-port", str(self._metrics_port), "--restore-on-exit"]
        GuestProgram(self._guest, "agent", ["env", MODULES, *agent]).start()
        self._await_agent()

    def _await_agent(self) -> None:
        """Until it answers; then until the governor has granted it credit."""
        ready = f"busybox wget -q -O - http://127.0.0.1:{self._metrics_port}/ready"
        self._sh(
            f"for _ in $(seq {AGENT_S:.0f}); do {ready} && exit; sleep 1; done; tail -n 30 {LOGS}/agent.log; exit 1"
        )
        self._rig.say("leak: the agent is ready")
        wait(STARTED_S, *self._parts)

    def _mib(self, part: float) -> int:
        return int(self._mem_bytes * part) // MIB

    def episodes(self, block: int, condition: Condition) -> Iterator[Episode]:
        """Publish the condition's policy, and run its leaks."""
        new = self._policy.with_suffix(".new")
        new.write_text(_policy_yaml(condition))
        new.replace(self._policy)
        wait(POLICY_S, *self._parts)
        peak = {"kind": "peak", "mib": self._mib(PEAK_PART), "seconds_max": PEAK_S_MAX}
        found = self._inside(
            service=self._service.uid,
            best_effort={f"{role}-{kind}": _pod(block, condition, kind, role).uid for role, kind in PODS},
            leaks=[peak, {"kind": "endless", "mib": 0, "seconds_max": END_S_MAX}],
            capacity_milli=CPUS * 1000,
            swap_mib=self._mib(SWAP_PART) if condition.swap else 0,
            high_pct=HIGH_PCT if condition.high else 0,
            service_mib=self._mib(SERVICE_PART),
            cache_mib=self._mib(CACHE_PART),
            rate_mib_s=self._mem_bytes * RATE_PART / MIB,
            file=str(self._file),
            file_mib=FILE_MIB,
            metrics_port=self._metrics_port,
        )
        for one in json.loads(found):
            yield Episode(block=block, condition=condition.name, kind=one.pop("kind"), found=one)

    def _inside(self, **task: object) -> str:
        return self._sh(f"{MODULES} {shlex.join([sys.executable, '-m', leak_guest.__name__, json.dumps(task)])}")

    def _sh(self, script: str) -> str:
        try:
            return self._guest.sh(script, within_s=SCRIPT_S)
        except (ScriptError, OSError) as error:
            raise CannotRunError(f"the guest: {error}") from error


def _pod(block: int, condition: Condition, kind: str, role: str) -> DemoPod:
    place = CONDITIONS.index(condition)
    return DemoPod(node=NODE, name=f"{role}-{block}-{place}-{kind}", kind="besteffort", cpu_milli=0)


def _sparse(file: Path, mib: int) -> Path:
    file.touch()
    os.truncate(file, mib * MIB)
    return file


def _policy_yaml(condition: Condition) -> str:
    threshold: dict[str, object] = {"enable": True, "memoryEvictThresholdPercent": EVICT_PCT}
    if condition.early:
        threshold["memoryEarlyReclaimThresholdPercent"] = EARLY_PCT
    budget = {"clusterMax": 60, "nodeMax": 30, "namespaceMax": 30, "intervalSeconds": 60}
    data = {
        "colocation-config": json.dumps({"enable": True}),
        "resource-threshold-config": json.dumps({"clusterStrategy": threshold}),
        "eviction-budget-config": json.dumps(budget),
    }
    name = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data})


def rows(episodes: Sequence[Episode]) -> list[Row]:
    """One for each condition and kind of leak, and whether evictions fell by half at no stall."""
    made = []
    for condition in CONDITIONS:
        own = [one for one in episodes if one.condition == condition.name]
        for kind in KINDS:
            if alike := [one for one in own if one.kind == kind]:
                records = [asdict(one) for one in alike]
                made.append(told(f"{condition.name}: {kind} leak", _text(alike), n=len(alike), episodes=records))
        if own and condition != TODAY:
            made.append(_judged(condition, own, [one for one in episodes if one.condition == TODAY.name]))
    return made


def _judged(condition: Condition, own: Sequence[Episode], today: Sequence[Episode]) -> Row:
    fell = _evictions(own) / len(own) <= _evictions(today) / max(1, len(today)) / 2
    stall = max(one.stall_permille for one in own)
    stuck = sum(not one.found["finished"] and not one.found["evicted"] for one in own)
    return judged(
        f"{condition.name}: evictions",
        f"half, stall <= {STALL_PERMILLE_MAX / 10:g}%, none stuck",
        f"{_evictions(own)} in {len(own)} episodes, today's rule {_evictions(today)} in {len(today)}; the service "
        f"waited for memory {stall / 10:.2f}% of the time at most; {stuck} leaks neither ended nor were evicted",
        met=fell and stall <= STALL_PERMILLE_MAX and not stuck,
        n=len(own),
    )


def _evictions(episodes: Sequence[Episode]) -> int:
    return sum(len(one.found["evicted"]) for one in episodes)


def _text(own: Sequence[Episode]) -> str:
    def middle(name: str) -> float:
        return median(one.found[name] for one in own)

    ended = sum(one.found["finished"] for one in own)
    return (
        f"{_evictions(own)} evictions, {ended} jobs done; {middle('seconds'):.0f} s, {middle('peak_pct'):.0f}% used at "
        f"most; {middle('evicted_bytes') / 1e6:.0f} MB evicted, {middle('reclaimed_bytes') / 1e6:.0f} MB reclaimed, "
        f"{middle('swapped_out_bytes') / 1e6:.0f} MB to swap; service waits for memory some "
        f"{max(one.stall_permille for one in own) / 10:.2f}% at most, full {middle('ls_mem_full_us') / 1000:.0f} ms, "
        f"touch p99 {middle('touch_p99_ms'):.0f} ms; best-effort waits {middle('be_mem_some_us') / 1e6:.1f} s; "
        f"{sum(one.found['oom_kills'] for one in own)} OOM kills"
    )
