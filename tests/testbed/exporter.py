"""Real cgroup counters under cAdvisor's names, and pods under kube-state-metrics', of one node on cgroup v1."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPod:
    """A pod with one container."""

    name: str
    group: str
    """Of its container, below each controller's mount."""
    priority_class: str = ""
    cpu_request: float = 0.0


class Exporter:
    def __init__(self, node: str, cpus: int, mem_bytes: int, pods: Sequence[ExportedPod]) -> None:
        self._node, self._cpus, self._mem_bytes, self._pods = node, cpus, mem_bytes, pods
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = "".join(f"{line}\n" for line in outer.lines()).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="exporter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def lines(self) -> Iterator[str]:
        node = f'node="{self._node}"'
        for kind in ("capacity", "allocatable"):
            yield f'kube_node_status_{kind}{{{node},resource="cpu",unit="core"}} {self._cpus}'
            yield f'kube_node_status_{kind}{{{node},resource="memory",unit="byte"}} {self._mem_bytes}'
        yield f"kube_node_labels{{{node}}} 1"
        yield from _cadvisor(f'id="/",{node}', MOUNT / "cpuacct", MOUNT / "memory")
        for pod in self._pods:
            labels = f'namespace="default",pod="{pod.name}",{node}'
            yield f'kube_pod_info{{{labels},priority_class="{pod.priority_class}"}} 1'
            yield f'kube_pod_status_phase{{namespace="default",pod="{pod.name}",phase="Running"}} 1'
            if pod.cpu_request:
                yield (
                    f'kube_pod_container_resource_requests{{{labels},container="main",resource="cpu"}} '
                    f"{pod.cpu_request}"
                )
            of_container = f'id="/{pod.group}",{labels},container="main"'
            yield from _cadvisor(of_container, *(MOUNT / part / pod.group for part in ("cpuacct", "memory")))


def _cadvisor(labels: str, cpu: Path, memory: Path) -> Iterator[str]:
    """As cAdvisor reads them: the working set is what is used without inactive files."""
    used_s = int((cpu / "cpuacct.usage").read_text()) / 1e9
    yield f'container_cpu_usage_seconds_total{{{labels},cpu="total"}} {used_s:.9f}'
    stat = dict(line.split() for line in (memory / "memory.stat").read_text().splitlines())
    used = int((memory / "memory.usage_in_bytes").read_text()) - int(stat["total_inactive_file"])
    yield f"container_memory_working_set_bytes{{{labels}}} {max(0, used)}"
