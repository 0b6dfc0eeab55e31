"""A cluster's series as kube-state-metrics and cAdvisor write them, in a real Prometheus on loopback."""

import math
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.brokers import free_port
from testbed.cluster.programs import Program, answers
from testbed.prometheus import promtool, tool

GIB = 1 << 30
GAUGES_EVERY = 2
"""kube-state-metrics is scraped half as often."""
START_S = 1_767_225_600
"""2026-01-01T00:00:00Z."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Nodes of 16 cores and 64 GiB; pods of a service that is busy by day, and a leak that frightens node 0 at noon."""

    nodes: int = 4
    hours: int = 72
    start_s: int = START_S
    scrape_s: int = 120
    cadvisor: bool = True
    cadvisor_label: str = "node"
    kube_label: str = "node"
    """Of kube-state-metrics."""
    kube_target: str = ""
    """The node on which kube-state-metrics runs, where its scrape job adds that."""
    replicas: int = 1
    """Of kube-state-metrics: each shows everything."""
    jobs: int = 1
    """That scrape each kubelet, as where a second operator has a Service of its own."""
    gap: tuple[int, int] = (0, 0)
    """Hours in which nothing was scraped."""
    restarts_at_hour: int = -1
    """When all of cAdvisor's counters begin again."""
    pool: str = "web"
    static_cpus: bool = False
    """Whether the kubelet's static policy gives the service the CPUs that it requests."""

    def kube(self, labels: str) -> str:
        """Labels of kube-state-metrics as they are stored."""
        target = f',node="{self.kube_target}"' if self.kube_target else ""
        return labels.replace("node=", f"{self.kube_label}=") + target

    def cores(self, at_s: int) -> float:
        return 3 + 2 * math.sin((at_s - START_S) / 86_400 * 2 * math.pi)

    def mem_bytes(self, node: int, at_s: int) -> int:
        """What it holds: for an hour at noon of each day, node 0 holds three times as much."""
        noon = node == 0 and (at_s // 3600) % 24 == 12
        return (36 if noon else 12) * GIB


def lines(world: World) -> Iterator[str]:
    times = [
        at
        for at in range(world.start_s, world.start_s + world.hours * 3600, world.scrape_s)
        if not world.gap[0] <= (at - world.start_s) / 3600 < world.gap[1]
    ]
    nodes = [f"node-{at:04}" for at in range(world.nodes)]

    yield from _kube_state_metrics(world, nodes, times[::GAUGES_EVERY])
    if world.static_cpus:
        yield from _static_cpus(nodes, times[::GAUGES_EVERY])
    if world.cadvisor:
        yield from _cadvisor(world, nodes, times)
    yield "# EOF"


def _kube_state_metrics(world: World, nodes: list[str], times: list[int]) -> Iterator[str]:
    def gauge(name: str, labels: str, value: float) -> Iterator[str]:
        replicas = [f'{world.kube(labels)},instance="{at}"' for at in range(world.replicas)]
        return (f"{name}{{{one}}} {value} {at}" for one in replicas for at in times)

    yield "# TYPE kube_node_labels gauge"
    for node in nodes:
        yield from gauge("kube_node_labels", f'node="{node}",label_node_pool="{world.pool}"', 1)
    for kind, cpu, mem in (("capacity", 16, 64), ("allocatable", 15, 60)):
        yield f"# TYPE kube_node_status_{kind} gauge"
        for node in nodes:
            yield from gauge(f"kube_node_status_{kind}", f'node="{node}",resource="cpu"', cpu)
            yield from gauge(f"kube_node_status_{kind}", f'node="{node}",resource="memory"', mem * GIB)
    for name, label, value in (
        ("kube_pod_info", 'priority_class=""', 1),
        ("kube_pod_status_phase", 'phase="Running"', 1),
    ):
        yield f"# TYPE {name} gauge"
        for node in nodes:
            yield from gauge(name, f'namespace="shop",pod="web-{node}",node="{node}",{label}', value)
    yield "# TYPE kube_pod_container_resource_requests gauge"
    for node in nodes:
        pod = f'namespace="shop",pod="web-{node}",container="app",node="{node}"'
        yield from gauge("kube_pod_container_resource_requests", f'{pod},resource="cpu"', 12)
        yield from gauge("kube_pod_container_resource_requests", f'{pod},resource="memory"', 48 * GIB)


def _static_cpus(nodes: list[str], times: list[int]) -> Iterator[str]:
    yield "# TYPE kube_pod_status_qos_class gauge"
    for node in nodes:
        of = f'namespace="shop",pod="web-{node}",qos_class="Guaranteed"'
        yield from (f"kube_pod_status_qos_class{{{of}}} 1 {at}" for at in times)
    yield "# TYPE kubelet_cpu_manager_exclusive_cpu_allocation_count gauge"
    for node in nodes:
        yield from (f'kubelet_cpu_manager_exclusive_cpu_allocation_count{{node="{node}"}} 12 {at}' for at in times)


def _cadvisor(world: World, nodes: list[str], times: list[int]) -> Iterator[str]:
    def shown(name: str, labels: str, value: str) -> Iterator[str]:
        return (f'{name}{{{labels},job="{job}"}} {value}' for job in range(world.jobs))

    yield "# TYPE container_cpu_usage_seconds counter"
    for node in nodes:
        of_pod = f'namespace="shop",pod="web-{node}",container="app",{world.cadvisor_label}="{node}"'
        of_root = f'id="/",{world.cadvisor_label}="{node}"'
        for labels, system in ((of_pod, 0.0), (of_root, 0.5)):
            total, before = 0.0, times[0]
            for at in times:
                total += (at - before) * (world.cores(at) + system)
                if before < world.start_s + world.restarts_at_hour * 3600 <= at:
                    total = 0.0
                before = at
                yield from shown("container_cpu_usage_seconds_total", labels, f"{total:.3f} {at}")
    yield "# TYPE container_memory_working_set_bytes gauge"
    for at_node, node in enumerate(nodes):
        of_pod = f'namespace="shop",pod="web-{node}",container="app",{world.cadvisor_label}="{node}"'
        for labels, system in ((of_pod, 0), (f'id="/",{world.cadvisor_label}="{node}"', GIB)):
            for at in times:
                of_all = world.mem_bytes(at_node, at) + system
                yield from shown("container_memory_working_set_bytes", labels, f"{of_all} {at}")


def write_blocks(file: Path, world: World, data: Path) -> None:
    """A world as blocks of a Prometheus; the file holds it meanwhile."""
    with file.open("w") as out:
        out.writelines(f"{line}\n" for line in lines(world))
    code, printed = promtool("tsdb", "create-blocks-from", "openmetrics", file, data)
    assert code == 0, printed
    file.unlink()


@contextmanager
def prometheus(
    folder: Path, world: World | None, *, web: str = "", ca: Path | None = None, scraped: str = ""
) -> Iterator[str]:
    """A Prometheus that holds a world, or nothing, and scrapes HOST:PORT every 5 s; ``ca`` signed its certificate."""
    data = folder / "data"
    if world is not None:
        write_blocks(folder / "series.txt", world, data)
    config = folder / "prometheus.yaml"
    job = f"[{{job_name: live, scrape_interval: 5s, static_configs: [{{targets: ['{scraped}']}}]}}]"
    config.write_text(f"scrape_configs: {job if scraped else '[]'}\n")
    (folder / "web.yaml").write_text(web)
    address = f"127.0.0.1:{free_port()}"
    command = [
        tool("prometheus"),
        f"--config.file={config}",
        f"--web.config.file={folder / 'web.yaml'}",
        f"--web.listen-address={address}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=10y",
    ]
    url = f"http://{address}" if ca is None else f"https://{address}"
    trust = None if ca is None else ssl.create_default_context(cafile=ca)
    program = Program("prometheus", folder / "prometheus.log")
    program.start(command, lambda: answers(f"{url}/-/ready", trust, fine=401))
    try:
        yield url
    finally:
        program.stop(within_s=30)
