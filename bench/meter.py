"""What a process costs between two marks of the topic that it writes: seen from outside, the same for all."""

import asyncio
import time
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from bench.counting import Counting
from bench.process import Running
from bench.rig import CannotRunError
from slacktide.schemas.topics import NODE_PARTITIONS

POLL_MS = 10
START_S = 240.0
"""To the first mark; a process that is much slower is not worth waiting for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Between the marks."""

    records: int
    cpu_s: float
    """User and system time, all threads."""
    wall_s: float
    rss_mb: float
    """At the end."""
    beside: int = 0
    """Records that it wrote meanwhile into another topic."""

    @property
    def per_core_s(self) -> float:
        """Records per CPU second."""
        return self.records / self.cpu_s


def cost(
    bootstrap: str, topic: str, process: Running, start: int, end: int, longest_s: float, beside: str | None = None
) -> Cost:
    """Wait for both marks and say what lay between.

    Args:
        bootstrap: the broker.
        topic: what the process writes into; the log counts only what it has acknowledged.
        process: the one that pays.
        start: so many records of the topic come before, and
        end: so many in all; less where the time is up before.
        longest_s: from the first mark on.
        beside: another topic that it writes; the first mark is not before each of its partitions has grown, so that
            a process which still starts is not measured.

    Raises:
        CannotRunError: the process ended, or did not reach the first mark in time, or only at the second.

    """

    async def watch() -> Cost:
        others = [TopicPartition(beside, partition) for partition in range(NODE_PARTITIONS)] if beside else []
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer, Counting(bootstrap, topic) as counting:

            async def until(mark: int, at_s: float) -> tuple[int, float, float]:
                while (written := await counting.now(POLL_MS)) < mark:
                    process.check()
                    if time.monotonic() > at_s:
                        break
                return written, process.cpu_s(), time.monotonic()

            before = await consumer.end_offsets(others)
            late_s = time.monotonic() + START_S
            first = await until(start, late_s)
            while any(count <= before[place] for place, count in (await consumer.end_offsets(others)).items()):
                first = await until(first[0] + 1, time.monotonic() + longest_s)
                if first[0] >= end or time.monotonic() > late_s:
                    raise CannotRunError(
                        f"{process.name}: {first[0]} records, and still partitions of {beside} without any"
                    )
            before = await consumer.end_offsets(others)
            if first[0] < start:
                raise CannotRunError(f"{process.name}: {first[0]} of {start} records after {START_S:g} s")
            last = await until(end, time.monotonic() + longest_s)
            return Cost(
                records=last[0] - first[0],
                cpu_s=last[1] - first[1],
                wall_s=last[2] - first[2],
                rss_mb=process.rss_mb(),
                beside=sum((await consumer.end_offsets(others)).values()) - sum(before.values()),
            )

    return asyncio.run(watch())
