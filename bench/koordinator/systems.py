"""Koordinator and Slacktide on the test bed's node, each alone, as processes of this machine."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.process import Slacktide
from bench.rig import Rig
from testbed.cluster.real_koordinator import NAMESPACE, Koordlet, Manager
from testbed.cluster.real_node import RealNode

OWN = "slacktide-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One that runs."""

    name: str
    on_node: dict[str, int]
    """Pids by name of what each node has."""
    central: dict[str, int]
    """Pids by name of what a cluster has once."""
    silence: Callable[[], None]
    """Ends what the node has, at once."""


Start = Callable[[Rig, RealNode, Path], contextlib.AbstractContextManager[System]]
"""``with start(rig, node, proc)``: the folder stands in for the node's /proc."""


@contextlib.contextmanager
def koordinator(_: Rig, node: RealNode, proc: Path) -> Iterator[System]:
    """Run koordlet and koord-manager; its webhooks are not part of the loop."""
    manager, koordlet = Manager(node, webhooks=False), Koordlet(node, proc=proc)
    try:
        manager.start()
        koordlet.start()
        yield System(
            name="Koordinator",
            on_node={"koordlet": koordlet.program.pid},
            central={"koord-manager": manager.program.pid},
            silence=lambda: koordlet.program.stop(signal.SIGKILL),
        )
    finally:
        koordlet.stop()
        manager.stop()


@contextlib.contextmanager
def slacktide(rig: Rig, node: RealNode, proc: Path) -> Iterator[System]:
    """Run agent, worker, bridge and Kafka."""
    broker = rig.kafka()
    crt, key = node.pki.certificate("kubelet-client", "/O=system:masters/CN=kubelet-client")
    given = {
        "bootstrap": broker.bootstrap,
        "node-name": node.name,
        "kubelet": f"https://127.0.0.1:{node.kubelet_port}",
        "kubelet-ca": node.ca,
        "kubelet-cert": crt,
        "kubelet-key": key,
        "kubelet-folder": node.folder / "kubelet",
        "api-server": node.url,
        "api-token": _token(node),
        "api-ca": node.ca,
        "proc-mount": proc,
        "state-folder": rig.folder / f"state-{broker.pid}-{len(list(rig.folder.iterdir()))}",
    }
    arguments = [f"--{name}={value}" for name, value in given.items()]
    of = ["--bootstrap", broker.bootstrap, "--kubeconfig", str(node.kubeconfig), "--namespace", OWN]
    with (
        Slacktide(rig, "bridge", *of, "--policy-namespace", NAMESPACE) as bridge,
        Slacktide(rig, "stream", "--bootstrap", broker.bootstrap) as stream,
        Slacktide(rig, "agent", *arguments) as agent,
    ):
        for each in (bridge, stream, agent):
            each.wait_ready()
        pids = {"worker": stream.process.pid, "bridge": bridge.process.pid, "Kafka": broker.pid}
        yield System(name="Slacktide", on_node={"agent": agent.process.pid}, central=pids, silence=agent.process.kill)


def _token(node: RealNode) -> Path:
    """Of an account that may evict."""
    if not node.exists(f"/api/v1/namespaces/{OWN}"):
        node.post("/api/v1/namespaces", {"metadata": {"name": OWN}})
    account = node.account(OWN, "slacktide-agent", seconds=24 * 3600)
    node.apply(f"""\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: slacktide-agent-bench}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}
subjects: [{{kind: ServiceAccount, name: slacktide-agent, namespace: {OWN}}}]
""")
    file = node.folder / "agent.token"
    file.write_text(account.token)
    return file


def cost(pids: dict[str, int]) -> dict[str, tuple[float, float]]:
    """CPU seconds so far and resident MiB, by name."""
    found = {}
    for name, pid in pids.items():
        process = psutil.Process(pid)
        times = process.cpu_times()
        found[name] = times.user + times.system, process.memory_info().rss / (1 << 20)
    return found
