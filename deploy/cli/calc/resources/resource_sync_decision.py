"""``slacktide calc resource_sync_decision``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Given, GivenResources
from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.resources.resource_sync_decision import DIFF_THRESHOLD, Pair, resource_sync_decision


class Input(Given, frozen=True, kw_only=True):
    """Published and computed resources of one tier."""

    resource_diff_threshold: Annotated[float, msgspec.Meta(ge=0, le=1e6)] | None = None
    tier: Literal["batch", "mid", "free"]
    old: GivenResources | None = None
    new: GivenResources | None = None


def calculate(given: Input) -> Calculated:
    """Decide whether a change is large enough to be written."""
    old, new = given.old or Resources(), given.new or Resources()
    fields = {f"{given.tier}_cpu_milli": "cpu_milli", f"{given.tier}_memory_bytes": "mem_bytes"}
    pairs = [
        Pair(of=name, old=getattr(old, f"{given.tier}_{field}"), new=getattr(new, f"{given.tier}_{field}"))
        for name, field in fields.items()
    ]
    threshold = DIFF_THRESHOLD if given.resource_diff_threshold is None else given.resource_diff_threshold
    decision = resource_sync_decision(pairs, threshold)
    return Calculated(output={"need_sync": decision.need_sync}, because=decision.because)
