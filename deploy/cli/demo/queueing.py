"""The latency of a virtual service: a small queue beside a batch that gets in its way. Pure, seeded.

As many servers as the machine has CPUs, first come, first served. A request's 5 ms take longer the
more batch work runs: caches and memory are shared (for all of it); where its CPU is taken, the request
waits for the batch to be moved away, and then shares the CPU by weight. The constants were chosen so that the
figures are of the order of those of a real machine; they prove nothing about one.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable

from slacktide.deploy.cli.demo.ls_worker import REQUEST_CPU_MS

SHARED_CACHE_COST = 0.35
"""How much longer a request takes with batch work on all CPUs."""
SLICE_MS = 2.0
"""How long a CPU stays with an equal that it was given to, on average."""


class Queue:
    """One node's service."""

    def __init__(self, servers: int, seed: int) -> None:
        self._free_s = [0.0] * servers
        self._dice = random.Random(seed)  # noqa: S311 a model, not a secret

    def serve(self, arrivals_s: Iterable[float], *, batch_part: float, batch_share: float) -> list[tuple[float, float]]:
        """Serve requests in order of arrival.

        Args:
            arrivals_s: when they arrive, ascending over all calls.
            batch_part: part of the machine that batch work uses now, 0 to 1.
            batch_share: part of a CPU that the batch keeps where both want it, by weight, 0 to 1.

        Returns:
            Pairs of arrival in seconds and latency in milliseconds.

        """
        return [(at_s, self._serve(at_s, batch_part, batch_share)) for at_s in arrivals_s]

    def _serve(self, arrival_s: float, batch_part: float, batch_share: float) -> float:
        service_ms = REQUEST_CPU_MS * (1 + SHARED_CACHE_COST * batch_part)
        if self._dice.random() < batch_part:
            service_ms = service_ms / (1 - batch_share) + batch_share * self._dice.expovariate(1 / SLICE_MS)
        start_s = max(arrival_s, heapq.heappop(self._free_s))
        end_s = start_s + service_ms / 1000
        heapq.heappush(self._free_s, end_s)
        return (end_s - arrival_s) * 1000
