"""A node moves from the real Koordinator to Slacktide and back, as the page has it, and no limit is lost."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import pytest

from testbed.brokers import KafkaBroker, running
from testbed.cluster import batch, images
from testbed.cluster.api_server import Json
from testbed.cluster.follow import checkout, follow
from testbed.cluster.installed import MANIFESTS, Installed, Version
from testbed.cluster.koordinator_record import METRICS
from testbed.cluster.real_koordinator import NAMESPACE, Koordlet, Manager, install
from testbed.cluster.real_node import NODE, RealNode
from testbed.cluster.told import Command, commands

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
    """koord-manager, and koordlet for as long as a pod of its DaemonSet is on the node."""

    def __init__(self, node: RealNode) -> None:
        self._node, self.manager, self.koordlet = node, Manager(node), Koordlet(node)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self.manager.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.koordlet.stop()
        self.manager.stop()

    @property
    def on_node(self) -> bool:
        return any(
            "deletionTimestamp" not in one["metadata"] for one in self._node.pods(NAMESPACE, "koord-app=koordlet")
        )

    def _follow(self) -> None:
        while not self._stop.wait(LOOK_S):
            if self.on_node and not self.koordlet.program.running:
                self.koordlet.start()
            elif not self.on_node and self.koordlet.program.running:
                self.koordlet.stop()


# What koordlet's DaemonSet runs here: koordlet itself is a process, started and ended with its pod.
KOORDLET: Json = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "koordlet", "namespace": NAMESPACE},
    "spec": {
        "selector": {"matchLabels": {"koord-app": "koordlet"}},
        "template": {
            "metadata": {"labels": {"koord-app": "koordlet"}},
            "spec": {"containers": [{"name": "koordlet", "image": images.PAUSE}], "terminationGracePeriodSeconds": 1},
        },
    },
}
AGENTS = ("daemonset/slacktide-agent", "daemonset/slacktide-agent-dry-run")
BESIDE = Version(manifests=MANIFESTS / "overlays/beside-koordinator")


@pytest.fixture
def koordinator(real_node: RealNode) -> Iterator[Koordinator]:
    install(real_node, POLICY)
    real_node.apply(json.dumps(KOORDLET))
    with Koordinator(real_node) as found:
        yield found


@pytest.fixture
def slacktide(real_node: RealNode) -> Iterator[Installed]:
    """Beside Koordinator, on no node yet."""
    with running(KafkaBroker) as kafka:
        installed = Installed(real_node, kafka)
        yield installed
        print(*map(installed.logs, ("deployment/slacktide-bridge", *AGENTS)), sep="\n")  # noqa: T201 - of a failure
        installed.stop()


def offered(node: RealNode) -> str | None:
    return node.get(f"/api/v1/nodes/{node.name}")["status"]["allocatable"].get(BATCH_CPU)


def unmoved(node: RealNode, namespace: str) -> dict[str, Any]:
    """What must not change of a pod: its uid, and that its container never restarted."""
    return {
        one["metadata"]["uid"]: [each["containerID"] for each in one["status"]["containerStatuses"]]
        for one in node.pods(namespace)
    }


def page() -> dict[str, list[Command]]:
    """Commands of the page by step: what comes before the next label."""
    steps: dict[str, list[Command]] = {"install": []}
    at = "install"
    names = {"=slacktide-dry-run": "try", "=slacktide --overwrite": "cut over", "colocation-agent-": "back"}
    asked = commands("koordinator.md")
    first = next(number for number, one in enumerate(asked) if "get configmap" in one.text)
    for command in [*(one for one in asked if "patch daemonset koordlet" in one.text), *asked[first:]]:
        at = next((name for end, name in names.items() if command.text.endswith(end)), at)
        shown = tuple(line.replace("node-1", NODE) for line in command.shown)
        steps.setdefault(at, []).append(replace(command, text=command.text.replace("node-1", NODE), shown=shown))
    return steps


def writers(node: RealNode, path: str) -> set[str]:
    return {one["manager"] for one in node.get(path)["metadata"]["managedFields"]}


def reported(node: RealNode) -> str | None:
    return node.get(f"{METRICS}/{node.name}").get("status", {}).get("updateTime")


def test_a_node_moves_to_slacktide_and_back_and_stays_limited(
    real_node: RealNode, koordinator: Koordinator, slacktide: Installed, tmp_path: Path
) -> None:
    node, here, root = real_node, real_node.namespace("moving"), checkout(tmp_path)
    metric = f"{METRICS}/{node.name}"

    def running() -> list[str]:
        return [one["status"]["phase"] for one in node.pods(here)]

    def reports_again(what: str) -> None:
        last = reported(node)
        node.wait(lambda: reported(node) not in {None, last}, f"{what} reports the node", RECONCILED_S)
        assert offered(node) not in {None, "0"}
        assert unmoved(node, here) == pods

    # Of a node without pods koordlet reports nothing.
    node.kubectl("run", "serves", "-n", here, f"--image={images.PAUSE}", "--restart=Never")
    node.wait(lambda: running() == ["Running"], "a service runs", 120)
    node.wait(lambda: offered(node) not in {None, "0"}, "Koordinator offers batch resources", RECONCILED_S)
    batch.pod(node, here, "works", "burn", "spin", "1", cpu_milli=300, mem_mib=64)
    node.wait(lambda: running() == ["Running"] * 2, "batch work runs", 120)
    slacktide.start(BESIDE)
    environment = {"SLACKTIDE_BOOTSTRAP": slacktide.kafka.bootstrap}
    steps = page()
    with Limits(node) as limits:
        node.wait(lambda: limits.limited, "Koordinator limits batch work", 120)
        pods = unmoved(node, here)
        follow(node, root, [*steps["install"], *steps["try"]], **environment)
        assert koordinator.koordlet.program.running
        reports_again("Koordinator")
        assert not any("slacktide" in one for one in writers(node, metric))

        follow(node, root, steps["cut over"], **environment)
        node.wait(lambda: not koordinator.koordlet.program.running, "koordlet has left")
        node.wait(lambda: "slacktide-bridge" in writers(node, metric), "the bridge reports the node", RECONCILED_S)
        reports_again("Slacktide")

        follow(node, root, steps["back"][:1], **environment)
        node.wait(lambda: koordinator.koordlet.program.running, "koordlet is back", RECONCILED_S)
        reports_again("Koordinator")
        reports_again("Koordinator")
        assert limits.lost == 0
