"""Minutes of a service on nodes whose best-effort load comes in batches, by a seed, and the fold of them."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from slacktide.schemas.service import ServiceMinute
from slacktide.streams.learning.fold import ServiceFold

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
START_MS = 1_760_000_000_000
SERVICE = "shop/web"
CPUS, PODS = 32, 4


def minute(
    *,
    node: str = "node-1",
    at_ms: int = START_MS,
    x: float = 0.3,
    y: float = 0.2,
    z: float = 0.4,
    service: str = SERVICE,
) -> ServiceMinute:
    """A minute with these shares of CPU, and the logarithm of its slowdown."""
    capacity_us = CPUS * MINUTE_MS * 1_000
    slowdown = math.exp(max(0.0, y))
    run_us = round(PODS * MINUTE_MS * 1_000 * min(0.3, 0.9 / slowdown))
    waited_us = round(run_us * (slowdown - 1))
    return ServiceMinute(
        service=service,
        node=node,
        observed_ms=at_ms,
        span_ms=MINUTE_MS,
        pods=PODS,
        run_us=run_us,
        wait_us=waited_us * 9 // 10,
        mem_wait_us=waited_us - waited_us * 9 // 10,
        be_cpu_us=round(x * capacity_us),
        ls_cpu_us=round(z * capacity_us),
        cpus=CPUS,
    )


@dataclass(slots=True)
class Node:
    """A node of the world: batch jobs arrive, last for about a quarter of an hour, and leave."""

    name: str
    random: random.Random
    baseline: float = 0.3
    """y without best-effort work."""
    noise: float = 0.1
    memory: float = 0.0
    """Correlation of the noise of successive minutes."""
    jobs: int = 0
    _noise: float = field(default=0.0, init=False)

    def batches(self) -> float:
        """Share of the CPU that jobs of a twelfth each use in the next minute."""
        self.jobs -= sum(self.random.random() < 1 / 15 for _ in range(self.jobs))
        if self.random.random() < 0.08:
            self.jobs = min(10, self.jobs + self.random.randint(1, 6))
        return min(0.95, max(0.0, self.jobs / 12 + self.random.gauss(0, 0.01) * bool(self.jobs)))

    def disturbed(self) -> float:
        """The noise of the next minute."""
        fresh = self.random.gauss(0, self.noise) * math.sqrt(1 - self.memory**2)
        self._noise = self.memory * self._noise + fresh
        return self._noise


@dataclass(slots=True, kw_only=True)
class World:
    """Nodes that run one service."""

    nodes: int
    seed: int = 1
    slope: Callable[[int], float] = lambda at_ms: 1.0
    """By time since the start."""
    curve: Callable[[float], float] = lambda share: share
    """The part of the slope that a share of the CPU has."""
    most: float = 1.0
    """Best-effort work uses no more of the CPU: a cap."""
    load_slope: float = 0.3
    baselines: tuple[float, float] = (0.3, 0.3)
    memory: float = 0.0
    idle: bool = False
    """No best-effort work."""
    full: float = 0.0
    """Best-effort work uses what is left of this share of the CPU; 0: what batches bring."""

    def minutes(self, until_ms: int) -> Iterator[ServiceMinute]:
        """All minutes from the start, each node's in order."""
        dice = random.Random(self.seed)
        nodes = [
            Node(f"node-{number}", random.Random(f"{self.seed}/{number}"), dice.uniform(*self.baselines),
                 memory=self.memory)
            for number in range(self.nodes)
        ]  # fmt: skip
        for at_ms in range(MINUTE_MS, until_ms + 1, MINUTE_MS):
            for node in nodes:
                yield self._minute(node, at_ms)

    def _minute(self, node: Node, at_ms: int) -> ServiceMinute:
        day = math.sin(2 * math.pi * at_ms / DAY_MS)
        z = min(0.9, max(0.02, 0.3 + 0.15 * day + node.random.gauss(0, 0.02)))
        x = 0.0 if self.idle else node.batches()
        if self.full:
            x = max(0.0, min(self.full - z, x + 0.3 + node.random.gauss(0, 0.03)))
        x = min(self.most, x)
        y = node.baseline + self.slope(at_ms) * self.curve(x) + self.load_slope * (z - 0.3) + node.disturbed()
        return minute(node=node.name, at_ms=START_MS + at_ms, x=x, y=y, z=z)


def folded(minutes: Iterator[ServiceMinute], fold: ServiceFold | None = None) -> ServiceFold:
    """Fold minutes, and settle after each hour as a worker does after each minute."""
    fold = fold or ServiceFold()
    for offset, one in enumerate(minutes, fold.folded_to + 1):
        fold.take(one, offset, one.observed_ms)
        if one.observed_ms // HOUR_MS != (one.observed_ms - MINUTE_MS) // HOUR_MS:
            fold.slope_out()
    fold.slope_out()
    return fold
