"""Figures: 10,000 nodes at 1 Hz on one worker through Apache Kafka: how old answers are, whether it keeps up."""

import asyncio
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import psutil
from aiokafka import AIOKafkaConsumer, TopicPartition

from bench import admin, log, loop
from bench.counting import Counting
from bench.process import Running, Slacktide
from bench.rig import Rig, wait
from bench.rows import Row, judged, told
from bench.trend import slope
from slacktide.deploy.demo.figures import percentile
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, METRIC, NODE_PARTITIONS, SAMPLE, SCORE

NODES, BRIEF_NODES = 10_000, 200
GENERATORS = 3
WARM_UP_S, TRIAL_S = 12.0, 20.0
BRIEF_S = 8.0
TRIALS_MAX = 6
LEAST_NODES = 100
CLOSE = 1.2
"""By so much more nodes are worth another trial."""
P99_MS = 2_000
FLAT_PART = 0.01
GROWTH_PER_S_MIN = 5.0
"""Lag that grows by less than this part of what comes, or by so few samples, is flat."""
PACE_PART = 0.97
"""Generators that send less of what they shall are too slow for this machine."""
LOOKED_AT = 0
"""The partition whose answers are looked at: a twelfth of the nodes."""
OBSERVED = re.compile(rb'"observed_ms":(\d+)')
STALE = b'"stale_ms":'


@dataclass(slots=True, kw_only=True)
class Watched:
    """One run at one size."""

    nodes: int
    ages_ms: dict[str, list[int]] = field(default_factory=dict)
    """By topic: event time of the sample to the log's time of the record."""
    sent: list[tuple[float, float]] = field(default_factory=list)
    """Seconds and samples in the log, and"""
    lag: list[tuple[float, float]] = field(default_factory=list)
    """seconds and samples without an answer."""
    core_pct: dict[str, float] = field(default_factory=dict)
    """CPU time of worker, generators and broker."""

    @property
    def sent_per_s(self) -> float:
        """By all generators."""
        return slope(self.sent)

    @property
    def growth_per_s(self) -> float:
        """Of the lag."""
        return slope(self.lag)

    @property
    def answered_per_s(self) -> float:
        """By the worker."""
        return self.sent_per_s - self.growth_per_s

    @property
    def paced(self) -> bool:
        """Whether the generators sent what they should."""
        return self.sent_per_s >= PACE_PART * self.nodes

    @property
    def flat(self) -> bool:
        """Whether the worker kept up with all nodes."""
        return self.paced and self.growth_per_s <= max(GROWTH_PER_S_MIN, FLAT_PART * self.nodes)

    def age_ms(self, topic: str, pct: float) -> float | None:
        """A percentile; None: nothing came."""
        return percentile(self.ages_ms.get(topic, []), pct)


def measure(rig: Rig) -> list[Row]:
    """Trials until it is known at how many nodes the lag stays flat, then the long run at that size."""
    wanted = BRIEF_NODES if rig.brief else NODES
    tried: list[Watched] = []
    size: int | None = wanted
    while size is not None and len(tried) < TRIALS_MAX:
        tried.append(_run(rig, size, BRIEF_S if rig.brief else TRIAL_S))
        size = next_size(tried)
    best = max((one.nodes for one in tried if one.flat), default=None)
    seconds = BRIEF_S if rig.brief else rig.minutes * 60
    return _rows(wanted, tried, tried[-1] if best is None else _run(rig, best, seconds))


def next_size(tried: Sequence[Watched]) -> int | None:
    """How many nodes to try next, in whole hundreds; None: it is known well enough.

    While none was flat what was answered, less a tenth: a worker that falls behind answers fewer than it could. Then
    halfway from the most that were flat to the fewest that were not.
    """
    best = max((one.nodes for one in tried if one.flat), default=0)
    if best:
        failed = min((one.nodes for one in tried if not one.flat), default=best)
        middle = (best + failed) // 200 * 100
        return middle if middle > CLOSE * best else None
    last = tried[-1]
    fewer = int(min(0.9 * last.answered_per_s, 0.9 * last.nodes)) // 100 * 100
    return max(LEAST_NODES, fewer) if last.nodes > LEAST_NODES else None


def _run(rig: Rig, nodes: int, seconds: float) -> Watched:
    kafka = rig.kafka()
    bounded = (SAMPLE, COMMAND, METRIC, ALLOCATABLE, SCORE)
    admin.set_up(kafka.bootstrap, bounded, admin.BOUNDED)
    admin.set_up(kafka.bootstrap, (SAMPLE, COMMAND, METRIC), {**admin.BOUNDED, **admin.STAMPED_BY_LOG})
    rig.say(f"crowd: {nodes} nodes, {WARM_UP_S + seconds:.0f} s")
    with ExitStack() as stack:
        worker = stack.enter_context(loop.worker(rig, kafka.bootstrap, policy=log.USUAL_POLICY, more=loop.SELDOM))
        shares = [(share, GENERATORS) for share in range(GENERATORS)]
        fleets = [
            stack.enter_context(loop.fleet(rig, kafka.bootstrap, nodes, policy=log.USUAL_POLICY, share=share))
            for share in shares
        ]
        log.wait_for(kafka.bootstrap, SAMPLE, nodes, 60.0, worker, *fleets)
        wait(WARM_UP_S, worker, *fleets)
        watched = asyncio.run(_watch(rig, kafka.bootstrap, nodes, seconds, worker, fleets, psutil.Process(kafka.pid)))
    rig.say(f"crowd: {_said(watched)}")
    return watched


async def _watch(
    rig: Rig,
    bootstrap: str,
    nodes: int,
    seconds: float,
    worker: Slacktide,
    fleets: Sequence[Running],
    broker: psutil.Process,
) -> Watched:
    watched = Watched(nodes=nodes)
    processes = {"worker": [worker.process], "generators": [one.process for one in fleets], "broker": [broker]}
    before = {name: _cpu_s(each) for name, each in processes.items()}
    reading = [asyncio.create_task(_read(bootstrap, topic.name, watched)) for topic in (COMMAND, METRIC)]
    places = [TopicPartition(SAMPLE.name, one) for one in range(NODE_PARTITIONS)]
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer, Counting(bootstrap, COMMAND.name) as answers:
        await answers.now()
        begin_s = said_s = time.monotonic()
        while (at_s := time.monotonic() - begin_s) < seconds:
            answered = await answers.now()
            sent = sum((await consumer.end_offsets(places)).values())
            watched.sent.append((at_s, sent))
            watched.lag.append((at_s, sent - answered))
            for process in (worker, *fleets):
                process.check()
            if time.monotonic() - said_s > 60.0:
                said_s = time.monotonic()
                rig.say(f"crowd: {at_s:.0f} s, lag {sent - answered}")
            await asyncio.sleep(1.0)
    took_s = time.monotonic() - begin_s
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    watched.core_pct = {name: 100 * (_cpu_s(each) - before[name]) / took_s for name, each in processes.items()}
    return watched


async def _read(bootstrap: str, topic: str, watched: Watched) -> None:
    ages = watched.ages_ms[topic] = []
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="latest") as consumer:
        place = TopicPartition(topic, LOOKED_AT)
        consumer.assign([place])
        await consumer.seek_to_end(place)
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                ages.extend(
                    age_ms(record.timestamp, record.value)
                    for record in records
                    # Answers that keep name no time.
                    if record.value and STALE not in record.value and OBSERVED.search(record.value)
                )


def age_ms(at_ms: int, body: bytes) -> int:
    """How long ago the sample was taken that a record is about; the first such field is its own."""
    found = OBSERVED.search(body)
    assert found is not None, body
    return at_ms - int(found[1])


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    spent = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in spent)


def _said(watched: Watched) -> str:
    ages = (
        f"{name} p50 {_ms(watched.age_ms(topic.name, 50))}, p99 {_ms(watched.age_ms(topic.name, 99))}"
        for name, topic in (("commands", COMMAND), ("NodeMetric", METRIC))
    )
    cpu = ", ".join(f"{name} {pct:.0f}%" for name, pct in watched.core_pct.items())
    return (
        f"{watched.nodes} nodes: sent {watched.sent_per_s:,.0f}/s, answered {watched.answered_per_s:,.0f}/s, "
        f"lag grows by {watched.growth_per_s:,.0f}/s; {'; '.join(ages)}; CPU {cpu}"
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def _rows(wanted: int, tried: Sequence[Watched], long: Watched) -> list[Row]:
    head = f"{wanted:,} nodes at 1 Hz, one worker"
    at = "" if long.nodes == wanted else f"at {long.nodes:,} nodes: "
    rows = []
    for name, topic in (("commands", COMMAND), ("NodeMetric", METRIC)):
        p50, p99 = long.age_ms(topic.name, 50), long.age_ms(topic.name, 99)
        n = len(long.ages_ms.get(topic.name, []))
        met = long.nodes == wanted and p99 is not None and p99 <= P99_MS
        said = f"{at}p50 {_ms(p50)}, p99 {_ms(p99)}"
        rows.append(
            judged(f"{head}: age of {name}", f"p99 <= {P99_MS / 1000:g} s", said, met=met, n=n, p50_ms=p50, p99_ms=p99)
        )
    minutes = (long.lag[-1][0] - long.lag[0][0]) / 60
    said = f"{at}grows by {long.growth_per_s:,.1f} samples/s over {minutes:.1f} min"
    met = long.nodes == wanted and long.flat
    rows.append(judged(f"{head}: lag", "flat", said, met=met, n=len(long.lag), growth_per_s=long.growth_per_s))
    cpu = ", ".join(f"{name} {pct:.0f}%" for name, pct in long.core_pct.items())
    trials = "; ".join(
        f"{one.nodes:,}: {one.answered_per_s:,.0f} answered/s" + ("" if one.paced else ", generators too slow")
        for one in tried
    )
    rows.append(told(f"{head}: nodes whose lag stays flat", f"{long.nodes if long.flat else 0:,}; CPU {cpu}; {trials}",
                     core_pct=long.core_pct))  # fmt: skip
    return rows
