"""``slacktide calc prod_reclaimable``."""

from __future__ import annotations

from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, GivenPod, GivenResources, Seconds
from slacktide.schemas.metric import Use
from slacktide.streams.decisions.prediction.prod_reclaimable import NodePeaks, PredictedPod, prod_reclaimable

COLD_START_S = 86_400
SAFETY_MARGIN_PCT = 10
Margin = Annotated[int, msgspec.Meta(ge=-100, le=1_000_000)]


class GivenPeaks(Given, frozen=True, kw_only=True):
    """A model's prediction."""

    p95_cpu_milli: Amount
    p98_memory_bytes: Amount

    def use(self) -> Use:
        """Convert to the rule's type."""
        return Use(cpu_milli=self.p95_cpu_milli, mem_bytes=self.p98_memory_bytes)


class GivenPredictedPod(GivenPod, frozen=True, kw_only=True):
    """A pod with its age and its model's prediction; null: none."""

    uid: str
    age_seconds: Seconds
    deleting: bool = False
    prediction: GivenPeaks | None = None

    def predicted(self) -> PredictedPod:
        """Convert to the rule's type."""
        return PredictedPod.of(self, age_s=self.age_seconds, deleting=self.deleting, peak=_use(self.prediction))


class Input(Given, frozen=True, kw_only=True):
    """A node with its pods and models. ``raw_allocatable`` replaces all of ``node_allocatable``."""

    cold_start_seconds: Seconds = COLD_START_S
    safety_margin_percent: Margin = SAFETY_MARGIN_PCT
    node_allocatable: GivenResources | None = None
    raw_allocatable: GivenResources | None = None
    node_items: dict[str, GivenPeaks | None] | None = None
    pods: list[GivenPredictedPod] | None = None


def calculate(given: Input) -> Calculated:
    """Compute mid resources from the predicted use of production pods."""
    items = given.node_items or {}
    found = prod_reclaimable(
        [pod.predicted() for pod in given.pods or ()],
        NodePeaks(system=_use(items.get("sys")), prod=_use(items.get("koord-prod")), unclassed=_use(items.get(""))),
        allocatable=given.node_allocatable if given.raw_allocatable is None else given.raw_allocatable,
        cold_start_s=given.cold_start_seconds,
        safety_margin_pct=given.safety_margin_percent,
    )
    return Calculated(
        output={
            "pod_reclaimable": _shown(found.by_pods),
            "priority_reclaimable": _shown(found.by_node),
            "prod_reclaimable": _shown(found.reclaimable),
            "pod_peak": _shown(found.pod_peak),
            "priority_peak": _shown(found.node_peak),
            "prod_peak": _shown(found.peak),
            "pods_refused": list(found.refused),
        },
        because=found.because,
    )


def _use(given: GivenPeaks | None) -> Use | None:
    return None if given is None else given.use()


def _shown(use: Use | None) -> dict[str, int] | None:
    return None if use is None else {"cpu_milli": use.cpu_milli, "memory_bytes": use.mem_bytes}
