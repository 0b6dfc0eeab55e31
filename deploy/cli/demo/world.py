"""What the demo's conditions happen to: a real machine or virtual ones, behind one face."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from slacktide.deploy.cli.demo.agents import PlannedNode
from slacktide.deploy.cli.demo.conditions import Scenario
from slacktide.deploy.cli.demo.load import Load
from slacktide.deploy.cli.demo.pods import DemoPod, Form
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import SlacktideError


class DemoError(SlacktideError):
    """The demo cannot go on; the text is one clear sentence."""


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
    """Memory that the service's group holds now, its part of the page cache included; None: not of interest."""


@dataclass(frozen=True, slots=True)
class Served:
    """One request: its scheduled arrival on the monotonic clock, and how long it took from then on."""

    arrival_s: float
    latency_ms: float


class World(Protocol):
    """The nodes with their pods. All nodes are alike."""

    mode: Literal["real", "virtual"]
    scenario: Scenario
    why: str
    """Why it is this one of the two, and where to find it."""
    nodes: Sequence[str]
    machine: Machine

    async def open(self) -> None:
        """Make the nodes; the service starts and is idle.

        Raises:
            DemoError: they cannot be had.

        """

    def planned(self) -> list[PlannedNode]:
        """Each node with its folders, once they are open."""

    def agent_commands(self, bootstrap: Cluster, inventory: Path) -> list[list[str]]:
        """For each process of agents: the module to run, and its arguments."""

    async def enter(self, form: Form) -> None:
        """Let the batch work run as this; nothing happens where it does already."""

    def pods(self) -> list[DemoPod]:
        """The pods that now run, on all nodes."""

    def play(self, loads: Mapping[str, Load], seed: int, start_s: float) -> None:
        """Ask each node's service for a load from an instant of the monotonic clock on."""

    def served(self) -> list[Served]:
        """Requests that were finished since the last call."""

    def used(self) -> Used:
        """CPU seconds of the pods so far."""

    def unsettled(self) -> str:
        """What the batch work or its limits have not come to yet, in words; "": nothing."""

    def trouble(self) -> str:
        """What ended that should run, in one sentence; "" where all is well."""

    async def close(self) -> None:
        """Leave nothing behind. Also after an ``open`` that failed."""
