"""``slacktide calc numa_score``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Calculated, Whole
from slacktide.deploy.cli.calc.numa.numa_case import NodeCase, resource_of
from slacktide.streams.decisions.numa.score import Strategy, numa_score


class Input(NodeCase, frozen=True, kw_only=True):
    """A pod, a node's zones, and the scoring settings."""

    strategy: Strategy
    resource_weights: dict[str, Whole] | None = None


def calculate(given: Input) -> Calculated:
    """Compute the score of a node's zones for a pod."""
    weights = given.resource_weights or {}
    zones = given.zones_for_sets() if given.strategy == "LeastNUMANodes" else given.zones()
    scored = numa_score(
        given.pod.pod("input.pod"),
        given.settings(),
        zones if given.topology_fresh else None,
        given.strategy,
        {resource_of(key, "input.resource_weights"): weight for key, weight in weights.items()},
        corrected=given.corrected,
    )
    return Calculated(output={"score": scored.score}, because=[scored.because])
