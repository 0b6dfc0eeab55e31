"""Models the latency of a virtual service: a queue with interference by batch work. Pure, seeded.

It has one server per CPU, first come, first served. Batch work slows requests, since caches and memory are shared. On a
CPU in use by batch work, a request waits until that is moved away, then shares the CPU by weight. The constants give
figures in the range of real machines. They are no evidence about a real machine.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable

from slacktide.deploy.demo.ls_worker import REQUEST_CPU_MS

SHARED_CACHE_COST = 0.35
"""Slowdown of a request with batch work on all CPUs."""
SLICE_MS = 2.0
"""Mean time slice of a CPU for an equal process."""


class Queue:
    """One node's service."""

    def __init__(self, servers: int, seed: int) -> None:
        self._free_s = [0.0] * servers
        self._dice = random.Random(seed)  # noqa: S311 a model, not a secret

    def serve(self, arrivals_s: Iterable[float], *, batch_part: float, batch_share: float) -> list[tuple[float, float]]:
        """Serve requests in order of arrival.

        Args:
            arrivals_s: arrival times, ascending over all calls.
            batch_part: the part of the machine used by batch work, 0 to 1.
            batch_share: the part of a contended CPU that batch work keeps by weight, 0 to 1.

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
