"""What the central parts cost with many virtual nodes. Both see the same loads, as their agents would report them."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from bench.colony import SIZE, Meter, colony
from bench.fleet import PODS, name_of
from bench.koordinator.systems import stopped_after
from bench.rig import CannotRunError, Rig
from bench.rows import Row, told
from bench.tides import CONFIG_MAP, CPU_MILLI, load_milli
from slacktide.agents.clock import SystemClock
from slacktide.agents.kubernetes.api_server import ApiServer as Door
from slacktide.agents.kubernetes.resource import NODE_METRICS
from testbed.brokers import running
from testbed.cluster.api_server import ApiServer, Json
from testbed.cluster.identity import access_of
from testbed.cluster.koordinator_record import METRICS
from testbed.cluster.real_koordinator import Manager, install
from testbed.koordinator_nodes import status_of
from testbed.rungs import built_program, lacks_api, lacks_kafka, lacks_koordinator

SIZES, BRIEF_SIZES = (10, 100, 1_000), (10,)
WARM_UP_S, MEASURED_S, BRIEF_S = 40.0, 60.0, 10.0
REPORT_S = 60
"""Between two NodeMetrics of a node, as koordlet has it."""
AT_ONCE = 16
POD_BYTES = 100 << 20
CENTRAL = {"Koordinator": ("koord-manager",), "Slacktide": ("stream", "bridge", "Kafka")}
SHARED = ("kube-apiserver", "etcd")


class Central(msgspec.Struct, frozen=True):
    """What they cost of one system."""

    system: str
    nodes: int
    load_1m: float
    cpu_pct: dict[str, float]
    """Of a core, by process."""
    rss_mib: dict[str, float]


def measure(rig: Rig) -> list[Row]:
    """Each system with each number of nodes, in turns."""
    if (lack := lacks_api() or lacks_koordinator() or lacks_kafka()) is not None:
        raise CannotRunError(str(lack))
    return [_row(one) for one in _central(rig)]


def _central(rig: Rig) -> Iterator[Central]:
    for nodes in BRIEF_SIZES if rig.brief else SIZES:
        for start in (_koordinator, _slacktide):
            rig.say(f"koordinator-fleet: {start.__name__.strip('_')} with {nodes} nodes")
            found = start(rig, nodes)
            rig.say(f"koordinator-fleet: {_row(found).measured}")
            yield found


def _row(found: Central) -> Row:
    own = CENTRAL[found.system]
    cpu = ", ".join(f"{name} {pct:.1f}%" for name, pct in found.cpu_pct.items())
    mib = sum(found.rss_mib[name] for name in own)
    said = f"{sum(found.cpu_pct[name] for name in own):.1f}% of a core, {mib:.0f} MiB: {cpu}; load {found.load_1m}"
    return told(f"{found.system}, {found.nodes} nodes: central", said, n=1, **msgspec.to_builtins(found))


def _measured(rig: Rig, system: str, nodes: int, meter: Meter) -> Central:
    time.sleep(BRIEF_S if rig.brief else WARM_UP_S)
    pids = {name: process.pid for name, process in meter.processes.items()}
    names = (*CENTRAL[system], *SHARED)
    for name in names:
        meter.watch(name, pids[name])
    time.sleep(BRIEF_S if rig.brief else MEASURED_S)
    found = meter.told()
    return Central(
        system,
        nodes,
        float(rig.conditions()["load_1m"]),
        {name: found[name][0] for name in names},
        {name: found[name][1] * 1e6 / (1 << 20) for name in names},
    )


def _slacktide(rig: Rig, nodes: int) -> Central:
    with stopped_after(rig.kafka()), colony(rig, nodes) as at:
        at.start_nodes(1.0, kwok=built_program("kwok").exists())
        at.start_bridge()
        return _measured(rig, "Slacktide", nodes, at.meter)


def _koordinator(rig: Rig, nodes: int) -> Central:
    with running(ApiServer) as server, contextlib.ExitStack() as stack:
        install(server)
        server.apply(msgspec.json.encode(CONFIG_MAP).decode())
        with ThreadPoolExecutor(AT_ONCE) as threads:
            size = {"capacity": SIZE, "allocatable": SIZE}
            list(threads.map(lambda number: server.node(name_of(number), size), range(nodes)))
        manager = Manager(server, webhooks=False)
        stack.callback(manager.stop)
        manager.start()
        server.wait(lambda: len(server.get(METRICS)["items"]) == nodes, "all NodeMetrics are made", 300)
        meter, stop = Meter(), threading.Event()
        pids = {"koord-manager": manager.program.pid, "kube-apiserver": server.api.pid, "etcd": server.etcd.pid}
        for name, pid in pids.items():
            meter.watch(name, pid)
        reporter = threading.Thread(target=lambda: asyncio.run(_report(server, nodes, stop)), daemon=True)
        stack.callback(reporter.join)
        stack.callback(stop.set)
        reporter.start()
        return _measured(rig, "Koordinator", nodes, meter)


async def _report(server: ApiServer, nodes: int, stop: threading.Event) -> None:
    """Write each node's NodeMetric once a minute, one after the other."""
    begin_s, number = time.monotonic(), 0
    async with Door(access_of(server.kubeconfig), name="bench") as api:
        while not stop.is_set():
            due_s = begin_s + number * REPORT_S / nodes
            await asyncio.sleep(min(max(0.0, due_s - time.monotonic()), 0.5))
            if due_s <= time.monotonic():
                body = {"status": _status(number % nodes)}
                await api.patch(NODE_METRICS, name_of(number % nodes), body, dict, sub="status")
                number += 1


def _status(number: int) -> Json:
    """As koordlet would report a node with this load, all of its pods' but 2%."""
    now_ms = SystemClock().wall_ms()
    milli = load_milli(number, now_ms)
    system = {"cpu_milli": CPU_MILLI // 50, "memory_bytes": POD_BYTES}
    each = {"cpu_milli": max(1, (milli - system["cpu_milli"]) // PODS), "memory_bytes": POD_BYTES}
    pods = [
        {"namespace": "default", "name": f"pod-{number}-{at}", "priority_class": "koord-prod", "usage": each}
        for at in range(PODS)
    ]
    node = {key: system[key] + PODS * each[key] for key in each}
    metric = {"node_usage": node, "system_usage": system, "pod_metrics": pods, "host_apps": []}
    return status_of(metric, now_ms // 1000)
