"""Two bridges between a broker and an API server; what Nodes show is judged by what was published."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from attack.system import AMOUNTS, System, configs
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY, POLICY, Topic
from slacktide.schemas.units import whole
from testbed.cluster.api_server import ApiServer
from testbed.cluster.manifests import SYSTEM
from testbed.history.published import falls
from testbed.history.records import History, read_history
from testbed.history.verdict import Verdict, verdict
from testbed.hosts import Host
from testbed.one_machine import eventually
from testbed.parts import Part
from testbed.policies import config_map

BRIDGE = (sys.executable, str(Path(__file__).parents[1] / "testbed/quick_bridge.py"))
OPERATORS = "koordinator-system"
BATCH = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")
LEADS = "slacktide_bridge_writer_epoch"
AGREES_S = 60.0
Amounts = tuple[int | None, ...]
"""Of batch CPU and memory."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one Node showed of batch resources."""

    node: str
    capacity: Amounts
    allocatable: Amounts


class Mirror:
    """Bridges as processes of their own; the test is the operator of the cluster."""

    def __init__(self, folder: Path, system: System, server: ApiServer, hosts: Mapping[str, Host]) -> None:
        self._system, self._server = system, server
        account = server.account(SYSTEM, "slacktide-bridge")
        where = ["--bootstrap", system.bootstrap, "--kubeconfig", str(account.kubeconfig), "--namespace", SYSTEM]
        self.bridges = [
            Part(name, folder, ["bridge", *where, "--replica-name", name], program=BRIDGE, prefix=host.prefix,
                 inside=host.inside)
            for name, host in hosts.items()
        ]  # fmt: skip
        self._looks: list[Look] = []
        self._labels: dict[str, str] = {}

    def __enter__(self) -> Self:
        size = {"cpu": f"{AMOUNTS.cpu_milli}m", "memory": str(AMOUNTS.mem_bytes)}
        for node in self._system.nodes:
            self._server.node(node.name, {"capacity": size, "allocatable": size})
        self._server.apply(json.dumps(config_map(**configs())), OPERATORS)
        for bridge in self.bridges:
            bridge.start()
        for node in self._system.nodes:
            self.wait_shown(node.name)
        return self

    def __exit__(self, *_: object) -> None:
        for bridge in self.bridges:
            bridge.kill()

    @property
    def leader(self) -> str:
        """The name of the bridge that writes now."""
        found = eventually(lambda: [each.name for each in self.bridges if each.metric(LEADS) > 0], AGREES_S)
        assert found, f"no bridge leads\n{self.described()}"
        return found[0]

    def relabel(self, node: str, label: str) -> None:
        """An operator labels a Node."""
        self._labels[node] = label
        self._server.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"changed": label}}})

    def strip(self, node: str) -> None:
        """Somebody removes what batch pods may have on a Node."""
        self._server.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": dict.fromkeys(BATCH)}})

    def look(self, node: str) -> Look:
        """What a Node shows; it is judged later."""
        status = self._server.get(f"/api/v1/nodes/{node}")["status"]
        self._looks.append(Look(node, _amounts(status["capacity"]), _amounts(status["allocatable"])))
        return self._looks[-1]

    def wait_shown(self, node: str) -> None:
        """Wait until batch pods may have something of a Node, and the inventory has its label.

        Raises:
            AssertionError: in vain.

        """
        assert eventually(lambda: None not in self.look(node).allocatable, AGREES_S, every_s=0.2), (
            f"{self._looks[-1]}\n{self.described()}"
        )
        label = self._labels.get(node)
        assert eventually(lambda: label in self._published_labels(node)[-1:], AGREES_S, every_s=0.2), (
            f"{node}: {self._published_labels(node)[-3:]}, not {label}\n{self.described()}"
        )

    def judge(self) -> list[Verdict]:
        """What must hold at any time between Nodes and topics."""
        history = self._history(INVENTORY, POLICY, ALLOCATABLE)
        return [one_writer(history), together(self._looks), published(self._looks, history)]

    def described(self) -> str:
        """How the bridges are, for a failed assertion."""
        return "\n\n".join(f"{each.name}:\n{each.last_words()}" for each in self.bridges)

    def _published_labels(self, node: str) -> list[str | None]:
        entries = self._history(INVENTORY).of(INVENTORY, NodeInventory)
        return [entry.body.facts.labels.get("changed") for entry in entries if entry.body.node == node]

    def _history(self, *topics: Topic) -> History:
        return History(self._system.in_test(lambda: read_history(self._system.bootstrap, topics)))


def _amounts(status: Mapping[str, str]) -> Amounts:
    return tuple(whole(status[name]) if name in status else None for name in BATCH)


def one_writer(history: History) -> Verdict:
    """A bridge that has lost its lease publishes nothing after the next one."""
    series = {"policy": [(entry.body.writer_epoch,) for entry in history.of(POLICY, Policy)]}
    for entry in history.of(INVENTORY, NodeInventory):
        series.setdefault(entry.body.node, []).append((entry.body.writer_epoch,))
    broken = [f"{what}: {fall}" for what, epochs in series.items() for fall in falls(epochs, strict=False)]
    return verdict("one writer at a time", sum(map(len, series.values())), broken)


def together(looks: Sequence[Look]) -> Verdict:
    """A bridge writes capacity and allocatable at once; the test itself removes the latter."""
    nothing = (None,) * len(BATCH)
    broken = [str(look) for look in looks if look.allocatable not in (look.capacity, nothing)]
    return verdict("capacity and allocatable together", len(looks), broken)


def published(looks: Sequence[Look], history: History) -> Verdict:
    """A Node shows figures that workers published of it, never more than it has, or nothing."""
    amounts = {(entry.body.node, (entry.body.batch_cpu_milli, entry.body.batch_mem_bytes))
               for entry in history.of(ALLOCATABLE, NodeAllocatable)}  # fmt: skip
    shown = [look for look in looks if None not in look.capacity]
    broken = [str(look) for look in shown if (look.node, look.capacity) not in amounts]
    return verdict("Nodes show published figures", len(shown), broken)
