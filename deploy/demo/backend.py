"""The interface of the demo's nodes, real or virtual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from slacktide.deploy.demo.conditions import Load, Scenario
from slacktide.deploy.demo.pods import DemoPod, Form, inventory_yaml
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import SlacktideError


class DemoError(SlacktideError):
    """The demo cannot continue. The text is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One node's size."""

    capacity_milli: int
    mem_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """CPU seconds so far, over all nodes."""

    service_s: float
    batch_s: float
    service_mem_bytes: int | None = None
    """Memory of the service's cgroup with its page cache; None: not measured."""


class Served(NamedTuple):
    """One request: its scheduled arrival on the monotonic clock, and its latency."""

    arrival_s: float
    latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What an agent of one node needs to find its cgroups."""

    cgroup_mount: Path
    proc_mount: Path
    kubepods: str
    state_folder: Path


class Backend(Protocol):
    """Identical nodes with their pods."""

    mode: Literal["real", "virtual"]
    scenario: Scenario = "cpu"
    why: str
    """Why the nodes are real or virtual, and where they are."""
    nodes: Sequence[str]
    machine: Machine

    async def open(self) -> None:
        """Create the nodes; the service starts idle. Raises DemoError if they are not available."""

    def place(self, node: str) -> Place:
        """Return the folders of a node; call it after ``open``."""

    def agents(self, bootstrap: Cluster, inventory: Path) -> list[str]:
        """Return the module and arguments of the agents' process."""

    async def enter(self, form: Form) -> None:
        """Run the batch work in this form; no change if it does already."""

    def pods(self) -> list[DemoPod]:
        """Return the running pods of all nodes."""

    def inventory(self) -> str:
        """Return all nodes and pods as ``kubectl get node,pods -o yaml`` prints them."""
        return inventory_yaml(self.nodes, self.machine.capacity_milli, self.machine.mem_bytes, self.pods())

    def play(self, loads: Mapping[str, Load], seed: int, start_s: float) -> None:
        """Start a load on each node's service at an instant of the monotonic clock."""

    def served(self) -> list[Served]:
        """Return the requests finished since the last call."""

    def used(self) -> Used:
        """Return the CPU seconds of the pods so far."""

    def unsettled(self) -> str:
        """Return why the batch work or its limits are not settled; "": they are. Default: they settle at once."""
        return ""

    def trouble(self) -> str:
        """Return which process ended, in one sentence; "": none."""

    async def close(self) -> None:
        """Clean up, even after a failed ``open``."""
