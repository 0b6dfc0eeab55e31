"""A real node moves from the real Koordinator to Slacktide and back: no limit is lost, and no pod notices."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from bench.proc import OwnProc

from testbed.brokers import KafkaBroker, running
from testbed.cluster import batch, images
from testbed.cluster.api_server import Json
from testbed.cluster.host_parts import agent_arguments, bridge_arguments
from testbed.cluster.koordinator_record import METRICS
from testbed.cluster.real_koordinator import NAMESPACE, Koordlet, Manager, install
from testbed.cluster.real_node import RealNode
from testbed.parts import Part, running_part

pytestmark = [
    *(pytest.mark.nightly, pytest.mark.alone, pytest.mark.realnode, pytest.mark.kafka, pytest.mark.koordinator),
    pytest.mark.timeout(1_200),
]
POLICY = {
    "colocation-config": {"enable": True},
    "resource-threshold-config": {"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cfsQuota"}},
}
BATCH_CPU = "kubernetes.io/batch-cpu"
LOOK_S = 0.01
RECONCILED_S = 240.0


class Limits:
    """Looks each 10 ms whether best-effort pods are limited, from when they first are."""

    def __init__(self, node: RealNode) -> None:
        self._node = node
        self.limited = False
        self.lost = 0
        """How often they were not."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(LOOK_S):
            limit = self._node.best_effort_quota_us
            self.limited |= limit is not None
            self.lost += self.limited and limit is None


class Koordinator:
    """koord-manager and koordlet."""

    def __init__(self, node: RealNode, proc: Path) -> None:
        self._manager, self._koordlet = Manager(node), Koordlet(node, proc=proc)

    def start(self) -> None:
        self._manager.start()
        self._koordlet.start()

    def stop_on_node(self) -> None:
        self._koordlet.stop()

    def stop(self) -> None:
        self._koordlet.stop()
        self._manager.stop()


@pytest.fixture
def proc(real_node: RealNode, tmp_path: Path) -> Iterator[Path]:
    """A /proc in which nothing uses the machine but its pods: what is offered does not depend on other work."""
    usage = real_node.best_effort("cpuacct").parent / "cpuacct.usage"
    with OwnProc(tmp_path / "proc", lambda: int(usage.read_text()) / 1e9) as own:
        yield own.folder


@pytest.fixture
def koordinator(real_node: RealNode, proc: Path) -> Iterator[Koordinator]:
    install(real_node, POLICY)
    found = Koordinator(real_node, proc)
    yield found
    found.stop()


@pytest.fixture
def kafka() -> Iterator[KafkaBroker]:
    with running(KafkaBroker) as broker:
        broker.apply_topics()
        yield broker


def offered(node: RealNode) -> str | None:
    return node.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"].get(BATCH_CPU)


def writers(node: RealNode, path: str) -> set[str]:
    return {one["manager"] for one in node.get(path)["metadata"]["managedFields"]}


def reported(node: RealNode) -> str | None:
    return node.get(f"{METRICS}/{node.name}").get("status", {}).get("updateTime")


def unmoved(node: RealNode, namespace: str) -> dict[str, Any]:
    """What must not change of a pod: its uid, and that its container never restarted."""
    return {
        one["metadata"]["uid"]: [each["containerID"] for each in one["status"]["containerStatuses"]]
        for one in node.pods(namespace)
    }


def published(node: RealNode, folder: Path) -> list[str]:
    """What the cluster has, as files for ``slacktide publish``: no bridge writes to the API server yet."""
    files: dict[str, Json] = {
        "policy": node.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/slo-controller-config"),
        "inventory": node.get(f"/api/v1/nodes/{node.name}"),
    }
    files["policy"] |= {"apiVersion": "v1", "kind": "ConfigMap"}
    files["inventory"] |= {"apiVersion": "v1", "kind": "Node"}
    for name, made in files.items():
        (folder / f"{name}.json").write_text(json.dumps(made))
    return [f"--{name}={folder / f'{name}.json'}" for name in files]


def test_a_node_moves_to_slacktide_and_back_and_stays_limited(
    real_node: RealNode, koordinator: Koordinator, kafka: KafkaBroker, proc: Path, tmp_path: Path
) -> None:
    node, of = real_node, kafka.bootstrap
    agent = [*agent_arguments(node, of, tmp_path / "state"), f"--proc-mount={proc}"]
    here = node.namespace("moving")
    # Of a node without pods koordlet reports nothing.
    node.kubectl("run", "serves", "-n", here, f"--image={images.PAUSE}", "--restart=Never")
    node.wait(lambda: [one["status"]["phase"] for one in node.pods(here)] == ["Running"], "a service runs", 120)
    koordinator.start()
    node.wait(lambda: offered(node) not in {None, "0"}, "Koordinator offers batch resources", RECONCILED_S)
    batch.pod(node, here, "works", "burn", "spin", "1", cpu_milli=300, mem_mib=64)
    node.wait(lambda: [one["status"]["phase"] for one in node.pods(here)] == ["Running"] * 2, "batch work runs", 120)
    with Limits(node) as limits:
        node.wait(lambda: limits.limited, "Koordinator limits batch work", 120)
        pods = unmoved(node, here)

        shadowed(node, of, tmp_path, agent)
        # koordlet first: then the agent is the only writer of the node's control groups.
        koordinator.stop_on_node()
        koordinator.stop()
        with (
            running_part(tmp_path, "stream", f"--bootstrap={of}") as stream,
            running_part(tmp_path, "bridge", *bridge_arguments(node, of, NAMESPACE)) as bridge,
            running_part(tmp_path, "agent", *agent) as acting,
        ):
            for part in (stream, bridge, acting):
                part.wait_ready()
            last = reported(node)
            node.wait(lambda: reported(node) != last, "Slacktide reports the node", RECONCILED_S)
            assert offered(node) not in {None, "0"}
            assert unmoved(node, here) == pods
        # And back: without --restore-on-exit the last limit stays until koordlet writes.
        koordinator.start()
        last = reported(node)
        node.wait(lambda: reported(node) != last, "Koordinator reports the node again", RECONCILED_S)
        assert offered(node) not in {None, "0"}
        assert unmoved(node, here) == pods
        assert limits.lost == 0


def shadowed(node: RealNode, of: str, folder: Path, agent: Sequence[str]) -> None:
    """Slacktide reads the same node and decides, and writes nothing but records."""
    publishing = ["publish", f"--bootstrap={of}", f"--node-name={node.name}", *published(node, folder)]
    with (
        running_part(folder, *publishing),
        running_part(folder, "stream", f"--bootstrap={of}") as stream,
        running_part(folder, "agent", *agent, "--dry-run") as shadow,
    ):
        stream.wait_ready()
        shadow.wait_ready()
        shadow.wait(lambda: dry_runs(shadow) >= 3, "it decides what it would write")
        assert not any("slacktide" in one for one in writers(node, f"{METRICS}/{node.name}"))


def dry_runs(part: Part) -> float:
    """Outcomes of limits that were not written."""
    lines = [one for one in part.ask("metrics").splitlines() if "dry" in one and not one.startswith("#")]
    return sum(float(one.rpartition(" ")[2]) for one in lines)
