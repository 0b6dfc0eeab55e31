"""Figures: what the queue's decider decides a second, and what a cycle and its memory cost with many that wait.

The decider's own CPU time, in this process and without Kafka: workloads finish, and others take their quota. Then a
term through Kafka: each turn is written, read back, and its states are published and acknowledged.
"""

import asyncio
import time
from collections.abc import Iterator
from statistics import quantiles

import psutil
from prometheus_client import REGISTRY

from bench.rig import Rig
from bench.rows import Row, judged, told
from slacktide.agents.clock import SystemClock
from slacktide.schemas.codec import encode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.queue import QueueBooking, QueueDecision, QueueOutcome
from slacktide.schemas.topics import QUEUE_OUTCOME
from slacktide.streams.decisions.queue.scheduling import Cycle, Scheduling
from slacktide.streams.engine.queueing import Term
from slacktide.streams.kafka import Sender, Tail
from slacktide.streams.queue.decider import Decider
from slacktide.streams.queue.ledger import Inputs, Ledger, inputs_of
from slacktide.streams.records import Out, Record
from testbed.queue_log import BEGUN_MS, FLAVOR, NAMES, Log, local, queue, workload

ADMISSIONS_PER_S, RSS_MB, CYCLE_MS = 500.0, 1_000.0, 100.0
QUEUES = 30
SHAPES = 5
QUOTA = 40
ADMITTED = 5_000
FETCH_WAIT_MS = 50
ENDED = 100
"""In each turn, of all queues."""
NOTHING = Inputs([], [], [])


def measure(rig: Rig) -> list[Row]:
    """Few that wait, then many."""
    few, many = (200, 2_000) if rig.brief else (2_000, 50_000)
    rows = []
    for waiting in (few, many):
        rig.say(f"queue: {waiting:,} workloads in {QUEUES} ClusterQueues")
        rows += _Run(waiting).rows(10)
    return [*rows, asyncio.run(_through_kafka(rig.kafka().bootstrap, 200 if rig.brief else ADMITTED))]


async def _through_kafka(bootstrap: str, count: int) -> Row:
    """All of them fit. The time is from when all are in Kafka until their states are acknowledged, of one term."""
    log, now_ms = Log(), SystemClock().wall_ms
    log.put(FLAVOR)
    for number in range(QUEUES):
        log.put(queue(f"q{number}", str(count)), local(f"q{number}"))
    at = Cluster(bootstrap)
    async with (
        Tail(at, FETCH_WAIT_MS) as tail,
        Sender(at, client_id="bench", timeout_s=30, compress=True) as sender,
    ):
        await sender.connect(NAMES)
        await _sent(sender, log)
        term = Term("bench", tail, sender, now_ms)
        await term.begin(None)
        await term.act()
        log.put(*(workload(number, f"q{number % QUEUES}") for number in range(count)))
        await _sent(sender, log)
        began_s, cpu_s = time.monotonic(), time.process_time()
        while (REGISTRY.get_sample_value("slacktide_queue_admissions_total") or 0) < count or term.goes_on:
            await term.listen()
            await term.act()
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
    per_s = count / took_s
    return judged("queue, through Apache Kafka: admissions", f"{ADMISSIONS_PER_S:g}/s",
                  f"{per_s:,.0f}/s, {count / cpu_s:,.0f} per CPU second",
                  met=per_s >= ADMISSIONS_PER_S, n=count, per_s=per_s, per_cpu_s=count / cpu_s)  # fmt: skip


async def _sent(sender: Sender, log: Log) -> None:
    """What a log in memory has goes to Kafka, and is gone from there."""
    await sender.send([Out(topic=one.topic, partition=0, key=one.key, value=one.value) for one in log.records])
    for records in log.topics.values():
        records.clear()


class _Run:
    """One decider, and what its workloads hold."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        self.held: dict[str, QueueBooking] = {}
        self.admitted = 0
        self.offset = 0
        self.cycles_s: list[float] = []
        log = Log()
        log.put(FLAVOR)
        for number in range(QUEUES):
            log.put(queue(f"q{number}", str(QUOTA)), local(f"q{number}"))
        log.put(*(self._workload(number) for number in range(waiting)))
        inputs = inputs_of(log.records)
        before = psutil.Process().memory_info().rss
        self.decider = Decider("bench", Ledger())
        self.decider.begin(1, BEGUN_MS)
        began_s = time.process_time()
        self._take(self.decider.turn(inputs, BEGUN_MS).decision)
        self.first_s = time.process_time() - began_s
        while self.decider.goes_on:
            self._take(self.decider.turn(NOTHING, BEGUN_MS).decision)
        self.rss_mb = (psutil.Process().memory_info().rss - before) / 1e6

    def rows(self, turns: int) -> list[Row]:
        """Some hundred workloads finish in each turn."""
        self.admitted = 0
        turns_s = []
        with _timed(self.cycles_s):
            for _ in range(turns):
                records, began_s = list(self._ended()), time.process_time()
                decision = self.decider.turn(Inputs([], [], records), BEGUN_MS).decision
                turns_s.append(time.process_time() - began_s)
                self._take(decision)
        per_s = self.admitted / sum(turns_s)
        cycle_ms, turn_ms = (quantiles(each, n=100)[98] * 1e3 for each in (self.cycles_s, turns_s))
        of = f"{self.waiting:,} waiting"
        return [
            judged(f"queue, {of}: admissions", f"{ADMISSIONS_PER_S:g}/s", f"{per_s:,.0f} per CPU second",
                   met=per_s >= ADMISSIONS_PER_S, n=self.admitted, per_cpu_s=per_s),
            judged(f"queue, {of}: a cycle", f"p99 {CYCLE_MS:g} ms", f"p99 {cycle_ms:.1f} ms of CPU",
                   met=cycle_ms <= CYCLE_MS, n=len(self.cycles_s), p99_ms=cycle_ms),
            told(f"queue, {of}: a turn with {ENDED} answers", f"p99 {turn_ms:.0f} ms of CPU", n=turns, p99_ms=turn_ms),
            judged(f"queue, {of}: memory for them", f"{RSS_MB:g} MB", f"{self.rss_mb:.0f} MB",
                   met=self.rss_mb <= RSS_MB, rss_mb=self.rss_mb),
            told(f"queue, {of}: a term's first turn", f"{self.first_s:.2f} s of CPU", first_s=self.first_s),
        ]  # fmt: skip

    def _workload(self, number: int):
        return workload(number, f"q{number % QUEUES}", str(1 + number % SHAPES), priority=number % 3)

    def _take(self, one: QueueDecision) -> None:
        for state in one.changes:
            if state.booking is not None and (state.booking.epoch, state.booking.turn) == (one.epoch, one.turn):
                self.held[state.uid] = state.booking
                self.admitted += 1

    def _ended(self) -> Iterator[Record]:
        for uid in sorted(self.held)[:ENDED]:
            booking = self.held.pop(uid)
            done = QueueOutcome(uid=uid, result="finished", epoch=booking.epoch, turn=booking.turn)
            yield Record(topic=QUEUE_OUTCOME.name, partition=0, offset=self.offset, timestamp_ms=0,
                         key=uid.encode(), value=encode(done))  # fmt: skip
            self.offset += 1


class _timed:  # noqa: N801 - a context
    """While it lasts, each cycle's CPU time is noted."""

    def __init__(self, into: list[float]) -> None:
        self._into, self._cycle = into, Scheduling.cycle

    def __enter__(self) -> None:
        into, cycle = self._into, self._cycle

        def timed(scheduling: Scheduling, now_s: int) -> Cycle:
            began_s = time.process_time()
            done = cycle(scheduling, now_s)
            into.append(time.process_time() - began_s)
            return done

        Scheduling.cycle = timed  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        Scheduling.cycle = self._cycle  # type: ignore[method-assign]
