"""What is kept of a phase, and what is computed from phases. Pure.

Latencies are kept as a histogram whose buckets are 1% wide, so that a quantile is exact to 1%.
"""

import gzip
import json
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

LEAST_MS = 0.01
WIDTH = math.log(1.01)
RESAMPLES = 1_000
OTHERS_MAX = 0.10
"""Of the machine: a phase beside more other work is not used."""
POWER = 2.8
"""Standard errors between two figures that are told apart with 80% power at the 5% level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One condition of one block of one pair."""

    service: str
    batch: str
    block: int
    condition: str
    seconds: float
    latencies: dict[int, int]
    """Requests by bucket."""
    busy_part: float
    """Of all CPUs, by the service and the batch work."""
    service_cpus: float
    batch_cpus: float
    others_part: float
    """Of all CPUs, by whatever else ran; Slacktide's own parts and the generator are not in it."""
    own_part: float
    """Of all CPUs, by Slacktide's own parts: agent, worker and broker."""
    work_per_s: float
    """Batch work done."""
    at: str
    """When it ended, in UTC."""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """There is one phase of each."""
        return self.service, self.batch, self.block, self.condition

    @property
    def quiet(self) -> bool:
        """Whether it counts."""
        return self.others_part <= OTHERS_MAX


def bucket(latency_ms: float) -> int:
    """The histogram's bucket."""
    return math.floor(math.log(max(latency_ms, LEAST_MS) / LEAST_MS) / WIDTH)


def quantile_ms(phases: Iterable[Phase], part: float) -> float:
    """Of all requests of some phases."""
    together: Counter[int] = Counter()
    for phase in phases:
        together.update(phase.latencies)
    left = part * sum(together.values())
    for number in sorted(together):
        left -= together[number]
        if left <= 0:
            return LEAST_MS * math.exp((number + 0.5) * WIDTH)
    raise ValueError("no request was served")


def ratio(phases: Sequence[Phase], condition: str, other: str, part: float = 0.99) -> tuple[float, float, float]:
    """The quantile of a condition by that of another, over the blocks that have both.

    Returns:
        The lower end of a 90% interval by a bootstrap over blocks, the ratio, and the upper end.

    """
    ours = {phase.block: phase for phase in phases if phase.condition == condition}
    theirs = {phase.block: phase for phase in phases if phase.condition == other}
    blocks = sorted(ours.keys() & theirs.keys())
    dice = random.Random(0)

    def of(drawn: Sequence[int]) -> float:
        return quantile_ms([ours[one] for one in drawn], part) / quantile_ms([theirs[one] for one in drawn], part)

    resampled = sorted(of(dice.choices(blocks, k=len(blocks))) for _ in range(RESAMPLES))
    return resampled[RESAMPLES // 20], of(blocks), resampled[-RESAMPLES // 20]


def detectable(phases: Sequence[Phase], condition: str, other: str) -> float:
    """The smallest difference in p99 that this number of blocks tells apart, as a part: 0.1 is 10%.

    It comes from the spread of the blocks' own log ratios.

    Raises:
        statistics.StatisticsError: fewer than two blocks have both.

    """
    ours = {phase.block: phase for phase in phases if phase.condition == condition}
    theirs = {phase.block: phase for phase in phases if phase.condition == other}
    logs = [
        math.log(quantile_ms([ours[one]], 0.99) / quantile_ms([theirs[one]], 0.99))
        for one in sorted(ours.keys() & theirs.keys())
    ]
    return math.exp(POWER * statistics.stdev(logs) / math.sqrt(len(logs))) - 1


def read(file: Path) -> list[Phase]:
    """All phases of a file of JSON lines, gzipped where its name ends so; none where it does not exist."""
    if not file.exists():
        return []
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
    return [phase_of(json.loads(line)) for line in text.splitlines()]


def append(file: Path, phase: Phase) -> None:
    """Keep a phase."""
    with file.open("a") as lines:
        lines.write(json.dumps(asdict(phase)) + "\n")


def phase_of(line: dict) -> Phase:
    """A phase as it was kept."""
    return Phase(**line | {"latencies": {int(number): count for number, count in line["latencies"].items()}})
