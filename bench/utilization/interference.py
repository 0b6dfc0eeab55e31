"""How much a service's p99 grows beside batch work: a model fitted to the frontier's records. Pure.

The logarithm of p99, in times of the service alone, grows in proportion to the batch work's part of the machine. The
slope depends on the service, on the kind of batch work, and on how the kernel ranks that work. A quota changes the part
and not the slope.

    PYTHONPATH=tests python -m bench.utilization.interference PHASES > bench/utilization/p99.jsonl
"""

import json
import math
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from bench.frontier.conditions import AGAIN, ALONE
from bench.frontier.records import Phase, quantile_ms, read

KEPT = Path(__file__).with_name("p99.jsonl")
Rank = Literal["requests", "weight", "idle"]
"""Pods with requests of their own; best-effort pods; best-effort pods with ``cpu.idle``."""
RANKS: Mapping[str, Rank] = {
    "no control": "requests",
    "weights": "weight",
    "quota 65%": "weight",
    "quota 85%": "weight",
    "quota 95%": "weight",
    "weights, idle": "idle",
}
"""By condition. CPU sets and the gate on pressure are other mechanisms, which the model does not describe."""
Pair: TypeAlias = tuple[str, str]
"""A service and a kind of batch work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the model needs of a phase."""

    service: str
    batch: str
    block: int
    condition: str
    batch_part: float
    """Of all CPUs."""
    p99_ms: float

    @property
    def pair(self) -> Pair:
        """Service and batch work."""
        return self.service, self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One phase beside batch work, in times of the same block's phases without."""

    pair: Pair
    block: int
    condition: str
    batch_part: float
    log_ratio: float

    @property
    def rank(self) -> Rank:
        """Of the batch work."""
        return RANKS[self.condition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Slopes by rank and pair; a pair that was not measured under a rank has the slope of all pairs."""

    pooled: Mapping[Rank, float]
    slopes: Mapping[tuple[Rank, Pair], float]

    @property
    def pairs(self) -> list[Pair]:
        """Those that were measured."""
        return sorted({pair for _, pair in self.slopes})

    def slope(self, rank: Rank, pair: Pair) -> float:
        """Of the pair, else of all pairs."""
        return self.slopes.get((rank, pair), self.pooled[rank])

    def ratio(self, rank: Rank, pair: Pair, batch_part: float) -> float:
        """p99, in times of the service alone."""
        return math.exp(self.slope(rank, pair) * batch_part)


def measured(phases: Iterable[Phase]) -> list[Measured]:
    """Of phases that count: a line a phase, and one of both without batch work."""
    found: dict[tuple[Pair, int, str], list[Phase]] = {}
    for phase in phases:
        if phase.quiet and (phase.condition in RANKS or phase.condition in {ALONE, AGAIN}):
            name = ALONE if phase.condition == AGAIN else phase.condition
            found.setdefault(((phase.service, phase.batch), phase.block, name), []).append(phase)
    cpus = os.cpu_count() or 1
    return [
        Measured(
            service=service, batch=batch, block=block, condition=condition,
            batch_part=round(statistics.mean(phase.batch_cpus for phase in own) / cpus, 4),
            p99_ms=round(quantile_ms(own, 0.99), 3),
        )
        for ((service, batch), block, condition), own in sorted(found.items())
    ]  # fmt: skip


def kept(file: Path = KEPT) -> list[Measured]:
    """Those that the project keeps."""
    return [Measured(**json.loads(line)) for line in file.read_text().splitlines()]


def points(phases: Sequence[Measured]) -> list[Point]:
    """Of blocks that have a phase without batch work."""
    alone = {(one.pair, one.block): one.p99_ms for one in phases if one.condition == ALONE}
    return [
        Point(
            pair=one.pair, block=one.block, condition=one.condition, batch_part=one.batch_part,
            log_ratio=math.log(one.p99_ms / alone[one.pair, one.block]),
        )
        for one in phases
        if one.condition in RANKS and (one.pair, one.block) in alone
    ]  # fmt: skip


def fit(seen: Sequence[Point]) -> Model:
    """Least squares through the origin: without batch work the ratio is 1.

    Raises:
        ValueError: nothing was measured under one of the ranks.

    """
    ranks: dict[Rank, list[Point]] = {rank: [one for one in seen if one.rank == rank] for rank in RANKS.values()}
    if empty := sorted(rank for rank, own in ranks.items() if not own):
        raise ValueError(f"no phases of rank {', '.join(empty)}: run the frontier for longer")
    slopes: dict[tuple[Rank, Pair], float] = {
        (rank, pair): _slope([one for one in own if one.pair == pair])
        for rank, own in ranks.items()
        for pair in sorted({one.pair for one in own})
    }
    return Model(pooled={rank: _slope(own) for rank, own in ranks.items()}, slopes=slopes)


def error(foretold: Iterable[tuple[Point, Model]]) -> float:
    """By which factor p99 and what was foretold of it differ: the root mean square of the logarithms."""
    return math.exp(math.sqrt(statistics.mean(off(model, one) ** 2 for one, model in foretold)))


def spread(seen: Sequence[Point]) -> dict[Rank, float]:
    """The error by rank, as a standard deviation of the logarithm; of all ranks where one has none of its own."""
    foretold = held_out(seen)
    found: dict[Rank, float] = {}
    for rank in RANKS.values():
        own = [one for one in foretold if one[0].rank == rank] or foretold
        found[rank] = math.log(error(own)) if own else 0.0
    return found


def off(model: Model, one: Point) -> float:
    """The logarithm of p99 as measured by p99 as foretold."""
    return one.log_ratio - math.log(model.ratio(one.rank, one.pair, one.batch_part))


def held_out(seen: Sequence[Point]) -> list[tuple[Point, Model]]:
    """Each point with a model that has seen no run of the same pair in the same block."""
    found = []
    for one in seen:
        others = [other for other in seen if (other.pair, other.block) != (one.pair, one.block)]
        if {other.rank for other in others} == set(RANKS.values()):
            found.append((one, fit(others)))
    return found


def _slope(own: Sequence[Point]) -> float:
    squares = sum(one.batch_part**2 for one in own)
    return sum(one.batch_part * one.log_ratio for one in own) / squares if squares else 0.0


if __name__ == "__main__":
    sys.stdout.writelines(json.dumps(asdict(one)) + "\n" for one in measured(read(Path(sys.argv[1]))))
