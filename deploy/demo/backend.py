"""What the demo's real and virtual nodes share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from slacktide.deploy.demo.conditions import Scenario
from slacktide.deploy.demo.pods import DemoPod, inventory_yaml
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


class Nodes(ABC):
    """What real and virtual nodes, which are identical among themselves, have in common."""

    mode: Literal["real", "virtual"]
    scenario: Scenario = "cpu"
    why: str
    """Why the nodes are real or virtual, and where they are."""
    nodes: Sequence[str]
    machine: Machine

    @abstractmethod
    def pods(self) -> list[DemoPod]:
        """Return the running pods of all nodes."""

    def inventory(self) -> str:
        """Return all nodes and pods as ``kubectl get node,pods -o yaml`` prints them."""
        return inventory_yaml(self.nodes, self.machine.capacity_milli, self.machine.mem_bytes, self.pods())

    def unsettled(self) -> str:
        """Return why the batch work or its limits are not settled; "": they are. Default: they settle at once."""
        return ""
