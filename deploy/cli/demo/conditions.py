"""Which conditions the demo goes through, in which order, for how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slacktide.deploy.cli.demo.pods import Form

BLOCKS = 3
COMPARED_S = 5.0
SETTLE_S = 1.5
SETTLE_CONTROLLED_S = 3.0
"""The first limit, and the first steps after it."""
SETTLE_MEMORY_S = 6.0
"""Until batch work has filled the memory, or the service has its data back."""

Name = Literal["alone", "uncontrolled", "weights", "controlled"]
Scenario = Literal["cpu", "memory"]
NAMES: dict[Scenario, tuple[Name, ...]] = {
    "cpu": ("alone", "uncontrolled", "weights", "controlled"),
    "memory": ("alone", "weights", "controlled"),
}
"""The conditions of each, in order."""
MEANINGS: dict[Name, str] = {
    "alone": "no batch work",
    "uncontrolled": "batch as ordinary Burstable pods",
    "weights": "batch best-effort, no limit",
    "controlled": "idle best-effort, limited by the loop",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One stretch of the demo: what was before settles unmeasured, then it is measured."""

    name: Name
    block: int
    settle_s: float
    measured_s: float
    scenario: Scenario = "cpu"

    @property
    def meaning(self) -> str:
        """What it is."""
        return MEANINGS[self.name]

    @property
    def seed(self) -> int:
        """All conditions of a block get the same load: their ratio is of like to like."""
        return 1 + self.block

    @property
    def limited(self) -> bool:
        """Whether the policy limits best-effort work."""
        return self.name == "controlled"

    @property
    def batch(self) -> Form:
        """What the batch work runs as."""
        if self.name == "alone":
            return "none"
        if self.name == "weights" and self.scenario == "memory":
            return "plain"
        return "burstable" if self.name == "uncontrolled" else "besteffort"


def conditions(
    controlled_s: float, blocks: int = BLOCKS, compared_s: float = COMPARED_S, scenario: Scenario = "cpu"
) -> list[Condition]:
    """Blocks of all conditions each, so that a slow drift of the machine meets all alike.

    Args:
        controlled_s: controlled time in all, over the blocks.
        blocks: how many there are.
        compared_s: of each other condition in each block.
        scenario: what batch work and service share.

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
