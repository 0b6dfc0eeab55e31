"""A day of a fleet through the real worker: samples in, limits, idle pods and sold amounts out. Time is simulated."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, Protocol

from bench.utilization.interference import Model, Pair, Rank
from bench.utilization.load import COUNTED_S, HOURS, LEAD_S, LEAD_STEPS, Task, backlog, service_parts
from bench.utilization.node import CPU_MILLI, SERVICES, SERVICES_MILLI, SMALL_SERVICES, SYSTEM_MILLI, Second, SimNode
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.policy import KEY, Policy
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, INVENTORY, POLICY, SAMPLE
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker


class Learning(Protocol):
    """What learns slopes of the services' minutes."""

    def take(self, node: SimNode, used: Second, slope: float, now_ms: int) -> None:
        """A node measured its service; ``slope``: the true one, by which it slows down."""

    def known(self) -> Mapping[str, int]:
        """Return the slopes that nodes know now, in thousandths, by service."""


LINE = 1.25
"""A service is over its line where p99 is more than this many times that of the service alone."""
START_MS = 1_800_000_000_000
LOOKED_AT = 16
"""Pending tasks that are tried on a node."""
Way = Literal["alone", "requests", "weight", "policy"]
WAYS: dict[Way, str] = {
    "alone": "services alone",
    "requests": "no control",
    "weight": "weights",
    "policy": "Slacktide",
}
"""The same services and, but for the first, the same pods on the same nodes."""


@dataclass(slots=True)
class Tally:
    """What a way came to, over nodes and seconds."""

    seconds: int = 0
    service: float = 0.0
    batch: float = 0.0
    over_s: int = 0
    spread_s: float = 0.0
    """With the model's error, as if it were the nodes': what can be expected to be over the line."""
    ratios: list[float] = field(default_factory=list)

    def count(self, service: float, batch: float, ratio: float, spread: float) -> None:
        """A node's second."""
        self.seconds += 1
        self.service += service
        self.batch += batch
        self.over_s += ratio > LINE
        self.spread_s += _over(ratio, spread)
        self.ratios.append(ratio)

    @property
    def busy_part(self) -> float:
        """Of all CPUs, by pods."""
        return (self.service + self.batch) / self.seconds

    @property
    def over_part(self) -> float:
        """Of node-seconds."""
        return self.over_s / self.seconds

    @property
    def spread_part(self) -> float:
        """The same with the model's error."""
        return self.spread_s / self.seconds


@dataclass(slots=True)
class Day:
    """One policy's."""

    tallies: dict[Way, Tally] = field(default_factory=lambda: {way: Tally() for way in WAYS})
    hours: list[tuple[float, float]] = field(default_factory=list)
    """Of each hour: parts of all CPUs that services used, and all pods."""
    samples: int = 0
    placed: int = 0


class Fleet:
    """Nodes, the worker that answers them, and a scheduler that places by what is sold."""

    def __init__(
        self,
        policy: Policy,
        model: Model,
        nodes: int,
        *,
        seed: int = 1,
        spread: Mapping[Rank, float] | None = None,
        learning: Learning | None = None,
    ) -> None:
        """Make it.

        Args:
            policy: in force.
            model: of what batch work does to a service.
            nodes: how many.
            seed: equal seed, equal day.
            spread: the model's error by rank, as a standard deviation of the logarithm; none: it is exact.
            learning: what learns of the services' minutes; none: they are not measured.

        """
        self.model, self._seed, self._spread, self._learning = model, seed, spread or {}, learning
        self._pairs = model.pairs
        services = SERVICES if learning is None else SMALL_SERVICES
        made = (SimNode(number, policy, self._pair(number)[0], services) for number in range(nodes))
        self._nodes = {one.name: one for one in made}
        self._backlog = backlog(seed)
        self._pending: list[Task] = []
        self._worker = Worker("fleet")
        self._offset = 0
        self._worker.policy(self._record(POLICY.name, 0, KEY, encode(policy), START_MS))
        for node in self._nodes.values():
            value = encode(node.inventory(START_MS))
            self._worker.inventory(self._record(INVENTORY.name, node.partition, node.name, value, START_MS))

    def run(self, hours: Sequence[int] = range(HOURS)) -> Day:
        """Let these hours pass."""
        day = Day()
        for hour in hours:
            self._hour(hour, day)
        return day

    def _hour(self, hour: int, day: Day) -> None:
        parts = {name: service_parts(self._seed, node.number, hour) for name, node in self._nodes.items()}
        for node in self._nodes.values():
            node.end_by(hour)
        begin_ms = START_MS + hour * 3_600_000
        for step in range(LEAD_STEPS):
            self._step(day, [parts[name][step] for name in self._nodes], begin_ms + step * LEAD_S * 1_000, LEAD_S)
            self._learn([parts[name][step] for name in self._nodes], hour, step)
            day.placed += self._place(hour)
        before = {way: (one.service, one.batch) for way, one in day.tallies.items()}
        for second in range(COUNTED_S):
            now_ms = begin_ms + (LEAD_STEPS * LEAD_S + second) * 1_000
            used = self._step(day, [parts[name][LEAD_STEPS + second] for name in self._nodes], now_ms, 1)
            for node, one in zip(self._nodes.values(), used, strict=True):
                self._count(day, node, one)
        all_s, mine = len(self._nodes) * COUNTED_S, day.tallies["policy"]
        service, batch = mine.service - before["policy"][0], mine.batch - before["policy"][1]
        day.hours.append((service / all_s, (service + batch) / all_s))

    def _learn(self, parts: Sequence[float], hour: int, step: int) -> None:
        """The agents publish what they measured, and the nodes know what was learned of it.

        As the steps of the lead stand for an hour, their minutes are spread over it.
        """
        if self._learning is None:
            return
        now_ms = START_MS + hour * 3_600_000 + (step + 1) * 3_600_000 // LEAD_STEPS
        for node, part in zip(self._nodes.values(), parts, strict=True):
            used = node.second(part)
            rank: Rank = "idle" if used.idle else "weight"
            slope = self.model.slope(rank, self._pair(node.number))
            self._learning.take(node, used, slope, now_ms)
        known = self._learning.known()
        for node in self._nodes.values():
            slope_permille = known.get(f"shop/{node.service}", 0)
            if slope_permille != node.facts.slope_permille:
                node.learn(slope_permille)

    def _step(self, day: Day, parts: Sequence[float], now_ms: int, span_s: int) -> list[Second]:
        """All nodes take a sample; the answers are obeyed before the next one."""
        used, records = [], []
        for node, part in zip(self._nodes.values(), parts, strict=True):
            used.append(node.second(part))
            sample, pods = node.sample(used[-1], now_ms, span_s * 1_000)
            value = encoded(sample, pods)
            records.append(self._record(SAMPLE.name, node.partition, node.name, value, now_ms))
        for out in self._worker.samples(records, now_ms):
            self._answered(out)
        day.samples += len(records)
        return used

    def _answered(self, out: Out) -> None:
        if out.topic not in {COMMAND.name, ALLOCATABLE.name} or out.value is None or out.key is None:
            return
        node = self._nodes[out.key.decode()]
        if out.topic == COMMAND.name:
            if out.answer == "set":
                node.obey(decode(out.value, NodeCommand))
        else:
            sold = decode(out.value, NodeAllocatable)
            node.sold_milli, node.sold_bytes = sold.batch_cpu_milli or 0, sold.batch_mem_bytes or 0

    def _place(self, hour: float) -> int:
        """Pending tasks go where what is sold has room; how many did."""
        placed = 0
        for node in self._nodes.values():
            while fitting := list(self._fitting(*node.free())):
                node.place(fitting, hour)
                self._pending = [task for task in self._pending if task not in fitting]
                placed += len(fitting)
        return placed

    def _fitting(self, free_milli: int, free_bytes: int) -> Iterator[Task]:
        self._pending += islice(self._backlog, LOOKED_AT - len(self._pending))
        for task in self._pending:
            if task.request_milli <= free_milli and task.mem_bytes <= free_bytes:
                free_milli, free_bytes = free_milli - task.request_milli, free_bytes - task.mem_bytes
                yield task

    def _count(self, day: Day, node: SimNode, used: Second) -> None:
        pair, service = self._pair(node.number), used.service
        rest = 1 - service - SYSTEM_MILLI / CPU_MILLI
        asked_milli = sum(task.request_milli for task, _ in node.tasks.values())
        share = asked_milli / (asked_milli + SERVICES_MILLI)
        ways: dict[Way, tuple[Rank, float]] = {
            "alone": ("weight", 0.0),
            # By requests, where both want more than there is: what the pods get, the services lack.
            "requests": ("requests", min(used.wanted, max(rest, share))),
            "weight": ("weight", max(0.0, min(used.wanted, rest))),
            "policy": ("idle" if used.idle else "weight", used.batch),
        }
        for way, (rank, batch) in ways.items():
            left = min(service, 1 - batch)
            ratio, error = self.model.ratio(rank, pair, batch), self._spread.get(rank, 0.0) if batch else 0.0
            day.tallies[way].count(left, batch, ratio, error)

    def node_of(self, service: str) -> str:
        """Return the name of one of its nodes."""
        return next(name for name, node in self._nodes.items() if node.service == service)

    def _pair(self, number: int) -> Pair:
        """Service and batch work of a node."""
        return self._pairs[number % len(self._pairs)]

    def _record(self, topic: str, partition: int, key: str, value: bytes, now_ms: int) -> Record:
        self._offset += 1
        return Record(
            topic=topic, partition=partition, offset=self._offset, timestamp_ms=now_ms, key=key.encode(), value=value
        )


def _over(ratio: float, spread: float) -> float:
    """The probability that p99 is over the line."""
    if not spread:
        return float(ratio > LINE)
    return 0.5 * math.erfc(math.log(LINE / ratio) / spread / math.sqrt(2))
