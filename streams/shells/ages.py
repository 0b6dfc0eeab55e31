"""A histogram that takes many observations at once: one call for each of them is a twentieth of a worker's time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector


class Ages(Collector):
    """Ages in buckets, cumulative when they are read.

    Args:
        name: of the metric, in seconds.
        documentation: its help.
        bounds_ms: upper bounds of the buckets, inclusive and ascending.
        registry: that it is read from.

    """

    def __init__(
        self, name: str, documentation: str, bounds_ms: Sequence[int], registry: CollectorRegistry = REGISTRY
    ) -> None:
        self._name, self._documentation, self._bounds_ms = name, documentation, bounds_ms
        self._counts = [0] * (len(bounds_ms) + 1)
        self._sum_ms = 0
        registry.register(self)

    def observe(self, ages_ms: Iterable[int]) -> None:
        """Count them."""
        counts, bounds_ms = self._counts, self._bounds_ms
        for age_ms in ages_ms:
            counts[bisect_left(bounds_ms, age_ms)] += 1
            self._sum_ms += age_ms

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """Give what was counted, as Prometheus reads it."""
        family = HistogramMetricFamily(self._name, self._documentation)
        bounds = [*(str(bound_ms / 1_000) for bound_ms in self._bounds_ms), "+Inf"]
        family.add_metric([], list(zip(bounds, accumulate(self._counts), strict=True)), self._sum_ms / 1_000)
        return [family]
