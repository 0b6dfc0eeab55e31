"""The demo's conditions, their order and duration. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slacktide.deploy.demo.pods import Form

BLOCKS = 3
COMPARED_S = 5.0
SETTLE_S = 1.5
SETTLE_CONTROLLED_S = 3.0
"""The first limit and its first steps."""
SETTLE_MEMORY_S = 6.0
"""Time for batch work to fill the memory, or for the service to reload its data."""

Name = Literal["alone", "uncontrolled", "weights", "controlled"]
Scenario = Literal["cpu", "memory"]
NAMES: dict[Scenario, tuple[Name, ...]] = {
    "cpu": ("alone", "uncontrolled", "weights", "controlled"),
    "memory": ("alone", "weights", "controlled"),
}
"""The conditions of each scenario, in order."""
MEANINGS: dict[Name, str] = {
    "alone": "no batch work",
    "uncontrolled": "batch as ordinary Burstable pods",
    "weights": "batch best-effort, no limit",
    "controlled": "idle best-effort, limited by Slacktide",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One phase of the demo: settling without measurement, then measurement."""

    name: Name
    block: int
    settle_s: float
    measured_s: float
    scenario: Scenario = "cpu"

    @property
    def meaning(self) -> str:
        """Return the description."""
        return MEANINGS[self.name]

    @property
    def seed(self) -> int:
        """Return the block's seed: all its conditions have the same load."""
        return 1 + self.block

    @property
    def limited(self) -> bool:
        """Return whether the policy limits best-effort work."""
        return self.name == "controlled"

    @property
    def batch(self) -> Form:
        """Return how the batch work runs."""
        if self.name == "alone":
            return "none"
        if self.name == "weights" and self.scenario == "memory":
            return "plain"
        return "burstable" if self.name == "uncontrolled" else "besteffort"


def conditions(
    controlled_s: float, blocks: int = BLOCKS, compared_s: float = COMPARED_S, scenario: Scenario = "cpu"
) -> list[Condition]:
    """Return blocks of all conditions, so that drift of the machine affects all conditions equally.

    Args:
        controlled_s: total controlled time over all blocks.
        blocks: number of blocks.
        compared_s: time of each other condition per block.
        scenario: cpu or memory.
    """
    return [
        Condition(
            name=name,
            block=block,
            settle_s=_settle_s(name, scenario),
            measured_s=controlled_s / blocks if name == "controlled" else compared_s,
            scenario=scenario,
        )
        for block in range(blocks)
        for name in NAMES[scenario]
    ]


def _settle_s(name: Name, scenario: Scenario) -> float:
    if scenario == "memory":
        return SETTLE_MEMORY_S
    return SETTLE_CONTROLLED_S if name == "controlled" else SETTLE_S
