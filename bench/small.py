"""Figures: what Slacktide costs a small cluster: worker, bridge and the embedded broker together, at 1 and 10 nodes.

Agents are the product's connections, without a kernel (``bench.links``). They and the API server are not counted.
With ``--against`` the same parts of another checkout run in the same seconds, on a broker and an API server of theirs.
"""

import contextlib
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from bench import log
from bench.fleet import CAPACITY, name_of
from bench.process import Running, Slacktide, environment
from bench.rig import CannotRunError, Rig, wait
from bench.rows import Row, judged, told
from slacktide.deploy.runtime.broker import SESSION_S
from testbed.brokers import EmbeddedBroker, running
from testbed.cluster.api_server import ApiServer
from testbed.cluster.manifests import SYSTEM
from testbed.cluster.webhook import install
from testbed.rungs import lacks_api

SIZES = 1, 10
CORE_PCT, RSS_MIB = 4.0, 250.0
WARM_UP_S, EACH_S, RUNS = 60.0, 20.0, 5
BRIEF_S = 3.0
HELD = "from slacktide.deploy.runtime import broker; print(getattr(broker, 'SAMPLES_WAIT_MS', broker.FETCH_WAIT_MS))"
"""How long the embedded broker may hold a worker's fetch, as ``slacktide up`` has it in a checkout."""
SIZE = {"cpu": f"{CAPACITY.cpu_milli}m", "memory": str(CAPACITY.mem_bytes), "pods": "110"}
WRITES = "slacktide_bridge_writes_total"


class Small:
    """The parts of one version, with a broker, an API server and agents of their own."""

    def __init__(self, rig: Rig, nodes: int, checkout: Path | None, stack: contextlib.ExitStack) -> None:
        api = stack.enter_context(running(ApiServer))
        install(api)
        api.apply(yaml.safe_dump(log.USUAL_CONFIG_MAP), log.USUAL_CONFIG_MAP["metadata"]["namespace"])
        for number in range(nodes):
            api.node(name_of(number), {"capacity": SIZE, "allocatable": SIZE})
        broker = stack.enter_context(running(EmbeddedBroker))
        broker.apply_topics()
        at = ["--bootstrap", broker.bootstrap]
        account = api.account(SYSTEM, "slacktide-bridge")
        where = [*at, "--kubeconfig", str(account.kubeconfig), "--namespace", SYSTEM]
        self.bridge = stack.enter_context(Slacktide(rig, "bridge", *where, checkout=checkout))
        self.bridge.wait_ready()
        asked = ["--session-timeout", str(SESSION_S), "--fetch-wait-ms", _held_ms(checkout)]
        self.worker = stack.enter_context(Slacktide(rig, "stream", *at, *asked, checkout=checkout))
        self.worker.wait_ready()
        paths = () if checkout is None else (str(checkout / ".src"),)
        links = [sys.executable, "-m", "bench.links", broker.bootstrap, "0", str(nodes)]
        self.agents = stack.enter_context(Running(rig, "agents", links, environment(*paths)))
        self._processes = {
            "worker": self.worker.process,
            "bridge": self.bridge.process,
            "broker": psutil.Process(broker.pid),
        }

    def cpu_s(self) -> dict[str, float]:
        """User and system time so far, by part."""
        times = {name: process.cpu_times() for name, process in self._processes.items()}
        return {name: one.user + one.system for name, one in times.items()}

    def rss_mib(self) -> dict[str, float]:
        """Resident memory now, by part."""
        return {name: process.memory_info().rss / 2**20 for name, process in self._processes.items()}


def _held_ms(checkout: Path | None) -> str:
    env = environment() if checkout is None else environment(str(checkout / ".src"))
    return subprocess.run([sys.executable, "-c", HELD], env=env, capture_output=True, text=True, check=True).stdout


def measure(rig: Rig) -> list[Row]:
    """One node, then ten.

    Raises:
        CannotRunError: this machine lacks Kubernetes' programs.

    """
    if (lack := lacks_api()) is not None:
        raise CannotRunError(str(lack))
    return [row for nodes in SIZES for row in _rows(rig, nodes)]


def _rows(rig: Rig, nodes: int) -> list[Row]:
    checkouts = [None] if rig.against is None else [None, rig.against]
    each_s, runs = (BRIEF_S, 1) if rig.brief else (EACH_S, RUNS)
    rig.say(f"small: {nodes} nodes")
    with contextlib.ExitStack() as stack:
        ours, *others = [Small(rig, nodes, checkout, stack) for checkout in checkouts]
        alive = [part for one in (ours, *others) for part in (one.worker, one.bridge, one.agents)]
        wait(BRIEF_S if rig.brief else WARM_UP_S, *alive)
        writes, begin_s = ours.bridge.labelled(WRITES, kind="status"), time.monotonic()
        found = [_stretch(each_s, (ours, *others), alive) for _ in range(runs)]
        writes, took_s = ours.bridge.labelled(WRITES, kind="status") - writes, time.monotonic() - begin_s
        memory = [one.rss_mib() for one in (ours, *others)]
    rows = _judged(nodes, [run[0] for run in found], memory[0], f"{writes:.0f} Node writes in {took_s:.0f} s")
    for place, used_mib in enumerate(memory[1:], 1):
        rows.append(_against(nodes, [(run[0], run[place]) for run in found], used_mib))
    return rows


def _stretch(each_s: float, those: tuple[Small, ...], alive: list[Any]) -> list[dict[str, float]]:
    before, begin_s = [one.cpu_s() for one in those], time.monotonic()
    wait(each_s, *alive)
    took_s = time.monotonic() - begin_s
    return [
        {name: 100 * (after - first[name]) / took_s for name, after in one.cpu_s().items()}
        for one, first in zip(those, before, strict=True)
    ]


def _judged(nodes: int, runs: list[dict[str, float]], used_mib: dict[str, float], wrote: str) -> list[Row]:
    sums, mib = [sum(run.values()) for run in runs], sum(used_mib.values())
    core_pct = statistics.median(sums)
    head = f"worker + bridge + embedded broker, {nodes} node{'s' * (nodes > 1)}"
    return [
        judged(f"{head}: CPU time", f"<= {CORE_PCT:g}% of a core",
               f"median {core_pct:.2f}% ({_parts(runs)}); {_each(sums)}; {wrote}",
               met=core_pct <= CORE_PCT, n=len(runs), core_pct=core_pct, runs=runs),
        judged(f"{head}: RSS", f"<= {RSS_MIB:g} MiB",
               f"{mib:.0f} MiB: " + ", ".join(f"{name} {one:.0f}" for name, one in used_mib.items()),
               met=mib <= RSS_MIB, **used_mib),
    ]  # fmt: skip


def _against(nodes: int, pairs: list[tuple[dict[str, float], dict[str, float]]], used_mib: dict[str, float]) -> Row:
    theirs = [other for _, other in pairs]
    ratios = [sum(one.values()) / sum(other.values()) for one, other in pairs]
    core_pct, ratio = statistics.median(sum(one.values()) for one in theirs), statistics.median(ratios)
    return told(
        f"the other checkout in the same seconds, {nodes} node{'s' * (nodes > 1)}",
        f"median {core_pct:.2f}% ({_parts(theirs)}), {sum(used_mib.values()):.0f} MiB; CPU time against it "
        f"{ratio:.2f} x: " + ", ".join(f"{one:.2f}" for one in ratios),
        n=len(pairs), core_pct=core_pct, ratio=ratio, ratios=ratios, runs=theirs, **used_mib,
    )  # fmt: skip


def _parts(runs: list[dict[str, float]]) -> str:
    return ", ".join(f"{name} {statistics.median(run[name] for run in runs):.2f}" for name in runs[0])


def _each(sums: list[float]) -> str:
    return "each " + ", ".join(f"{one:.2f}%" for one in sums)
