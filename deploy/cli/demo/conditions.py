"""Which conditions the demo goes through, in which order, for how long. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BLOCKS = 3
COMPARED_S = 5.0
SETTLE_S = 1.5
SETTLE_CONTROLLED_S = 3.0
"""The first limit, and the first steps after it."""

Name = Literal["ls_alone", "uncontrolled", "weights_only", "controlled"]
TITLES: dict[Name, str] = {
    "ls_alone": "service alone",
    "uncontrolled": "uncontrolled",
    "weights_only": "weights only",
    "controlled": "controlled",
}
MEANINGS: dict[Name, str] = {
    "ls_alone": "no batch work",
    "uncontrolled": "batch as ordinary Burstable pods",
    "weights_only": "batch best-effort, no limit",
    "controlled": "batch best-effort, limited by the loop",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One stretch of the demo: what was before settles unmeasured, then it is measured."""

    name: Name
    block: int
    settle_s: float
    measured_s: float

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
    def batch(self) -> Literal["none", "burstable", "besteffort"]:
        """What the batch work runs as."""
        if self.name == "ls_alone":
            return "none"
        return "burstable" if self.name == "uncontrolled" else "besteffort"


def conditions(controlled_s: float, blocks: int = BLOCKS, compared_s: float = COMPARED_S) -> list[Condition]:
    """Blocks of all four conditions each, so that a slow drift of the machine meets all alike.

    Args:
        controlled_s: controlled time in all, over the blocks.
        blocks: how many there are.
        compared_s: of each other condition in each block.

    """
    return [
        Condition(
            name=name,
            block=block,
            settle_s=SETTLE_CONTROLLED_S if name == "controlled" else SETTLE_S,
            measured_s=controlled_s / blocks if name == "controlled" else compared_s,
        )
        for block in range(blocks)
        for name in TITLES
    ]
