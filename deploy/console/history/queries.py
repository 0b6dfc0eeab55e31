"""Queries on the history: the store's file and the current minute. Calls block on disk: use a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from slacktide.deploy.console.history.decisions import Decisions, decided
from slacktide.deploy.console.history.file import (
    NODE_BITS,
    Reading,
    block_key,
    blocks_asked,
    blocks_of,
    placed,
    record_of,
    some,
)
from slacktide.deploy.console.history.log_records import LogRecords
from slacktide.deploy.console.history.minute import TICK_MS, Entry
from slacktide.deploy.console.history.moments import Moments, problems_of
from slacktide.deploy.console.history.node_figures import SEVERITIES
from slacktide.deploy.console.history.objects import Objects
from slacktide.deploy.console.history.pods import Pods
from slacktide.deploy.console.history.points import POINTS, STEPS_S, Gathered
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.deploy.console.history.store import SIZE_BYTES_MAX
from slacktide.deploy.console.history.traces import Traces, place_in, trace_in, traced
from slacktide.deploy.console.history.view import (
    Bounds,
    Decision,
    Gap,
    Lag,
    NodeRow,
    PolicyAt,
    Problem,
    Series,
    TopicRate,
)
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.tick import WorkerTick
from slacktide.schemas.topics import DEAD_LETTER, OUTCOME, POLICY, TICK
from slacktide.streams.explain.node_log import policy_of
from slacktide.streams.records import Place, Record

LOOKED_BACK_MS = 30_000
DEAD_LETTER_MS = 60_000
LAG_MIN = 1_000
"""A worker with a smaller lag keeps up."""
MANY = 1 << 62
_RANK = {one: -SEVERITIES.index(one) for one in SEVERITIES}


class History:
    """Reads the file, with or without a follower that writes to it.

    Each thread has its own connection.

    Args:
        path: the file.
        recorder: returns the recorder with the current minute; None: there is none.
        log: reads records that are not in the history.
        partitions: of topics keyed by node.
        size_bytes_max: of the file, for ``bounds``.
    """

    def __init__(
        self,
        path: Path,
        recorder: Callable[[], Recorder | None] = lambda: None,
        log: LogRecords | None = None,
        *,
        partitions: int = 12,
        size_bytes_max: int = SIZE_BYTES_MAX,
    ) -> None:
        self._path = path
        self._recorder = recorder
        self._size_bytes_max = size_bytes_max
        self.log = log or LogRecords(None)
        self._reading = Reading(path)
        self._moments = Moments(self._reading, recorder, partitions)
        self._decisions = Decisions(self._reading, recorder)
        self._traces = Traces(self._reading, recorder, self._moments)
        self.objects = Objects(self._reading, recorder)
        """Jobs, queue and credit."""
        self.pods = Pods(self._reading, recorder)

    # Extent.

    def bounds(self) -> Bounds:
        """Return the oldest and newest moment, and known gaps."""
        steps: dict[int, int] = {}
        for step_s in STEPS_S:
            found = self._reading.one(f"SELECT min(key) FROM p{step_s}")  # noqa: S608 - our own names
            if found and found[0] is not None:
                steps[step_s * 1_000] = (found[0] >> NODE_BITS) * step_s * POINTS * 1_000
        stored_s = self._reading.stored_s()
        live = self._recorder()
        newest_s = stored_s if live is None or not live.has_any else live.second_s
        if live is not None and live.has_any and not steps:
            steps[1_000] = live.begin_s * 1_000
        rows = self._reading.all("SELECT * FROM gap ORDER BY 1")
        return Bounds(
            oldest_ms=min(steps.values(), default=None),
            newest_ms=(newest_s - 1) * 1_000 if steps else None,
            steps_ms=steps,
            gaps=[Gap(from_ms=a, to_ms=b, what=c, reason=d) for a, b, c, d in rows],
            size_bytes=self._path.stat().st_size if self._path.exists() else 0,
            size_bytes_max=self._size_bytes_max,
        )

    def nodes(self) -> Sequence[str]:
        """Return the names of all known nodes."""
        live = self._recorder()
        self._reading.learn()
        return sorted({*self._reading.names.values(), *(() if live is None else live.nodes)})

    # All nodes at a moment.

    def cluster_at(self, at_ms: int) -> Sequence[NodeRow]:
        """Return all nodes at a moment, by name, at the best available resolution; empty: none was recorded."""
        return sorted(self._moments.all(at_ms // 1_000), key=lambda row: row.node)

    def row_at(self, node: str, at_ms: int) -> NodeRow | None:
        """Return one node; None: it was not recorded."""
        return self._moments.one(node, at_ms // 1_000)

    def end_ms(self, node: str, at_ms: int) -> int:
        """Return the end of the second or coarser point that a moment belongs to."""
        row = self.row_at(node, at_ms)
        return at_ms // 1_000 * 1_000 + 999 if row is None else row.end_ms

    # Problems.

    def problems_at(self, at_ms: int, rows: Iterable[NodeRow] | None = None) -> Sequence[Problem]:
        """Return problems at a moment: nodes, lag, dead letters of the last minute, gaps; worst first.

        Args:
            at_ms: the moment.
            rows: all nodes at that moment, if available.
        """
        rows = self.cluster_at(at_ms) if rows is None else rows
        return sorted(self._problems(at_ms, rows), key=lambda one: (_RANK[one.severity], one.node, one.name))

    def _problems(self, at_ms: int, rows: Iterable[NodeRow]) -> Iterator[Problem]:
        for gap in self.bounds().gaps:
            if gap.from_ms <= at_ms < gap.to_ms:
                text = f"not recorded: {gap.what}: {gap.reason}"
                yield Problem(severity="warning", name="missing", node="", text=text)
        for lag in self.lag_at(at_ms):
            if lag.lag is not None and lag.lag >= LAG_MIN:
                text = f"worker {lag.worker} lags {lag.lag:,} records in {lag.topic} {lag.partition}"
                yield Problem(severity="warning", name="lag", node="", text=text)
        dead_letters = self.dead_letters(at_ms - DEAD_LETTER_MS, at_ms)
        if dead_letters:
            text = f"{len(dead_letters)} dead letters in the last minute; to list them: slacktide dead-letter list"
            yield Problem(severity="warning", name="dead-letters", node="", text=text, place=placed(dead_letters[0]))
        for row in rows:
            yield from problems_of(row)

    def evicted(self, from_ms: int, to_ms: int) -> Sequence[Record]:
        """Return the outcomes of completed evictions in a span, oldest first."""
        return [one for one in self._entries(OUTCOME.name, from_ms, to_ms) if _is_eviction(one)]

    def lag_at(self, at_ms: int) -> Sequence[Lag]:
        """Return the lag of workers, by their last ticks within the 30 s before."""
        found: dict[tuple[str, str, int], Lag] = {}
        for record in self._entries(TICK.name, at_ms - LOOKED_BACK_MS - TICK_MS, at_ms + TICK_MS):
            if record.timestamp_ms > at_ms and found:
                break
            tick = decode(record.value, WorkerTick)
            for one in tick.partitions:
                found[tick.worker, one.topic, one.partition] = Lag(
                    worker=tick.worker, topic=one.topic, partition=one.partition, position=one.position, end=one.end,
                    at_ms=record.timestamp_ms,
                )  # fmt: skip
        return [found[key] for key in sorted(found)]

    def topics_at(self, at_ms: int) -> Sequence[TopicRate]:
        """Return the records per topic in the last complete minute, else in the first one so far."""
        minute, live = min(at_ms // 60_000, self._reading.stored_s() // 60) - 1, self._recorder()
        rates: Iterable[tuple[str, int]] = self._reading.all(
            "SELECT topic, records FROM rate WHERE minute = ? ORDER BY topic", minute
        )
        if not rates and live is not None and not self._reading.stored_s():
            rates = sorted(live.rates.items())
        ends = dict(self._reading.all("SELECT topic, sum(next) FROM cursor GROUP BY topic"))
        return [TopicRate(topic=topic, records=count, newest_offset=ends.get(topic, 0)) for topic, count in rates]

    def cursors(self, topic: str) -> Sequence[tuple[int, int]]:
        """Return the offset after the newest stored record for each partition of a topic."""
        asked = "SELECT partition, next FROM cursor WHERE topic = ? ORDER BY partition"
        return [(number, following) for number, following in self._reading.all(asked, topic)]

    def dead_letters(self, from_ms: int, to_ms: int, most: int = 200) -> Sequence[Record]:
        """Return the dead letters of a span, newest first."""
        return list(reversed(self._entries(DEAD_LETTER.name, from_ms, to_ms)))[:most]

    # One node over time.

    def node_series(self, node: str, from_ms: int, to_ms: int, points: int) -> Series:
        """Return one node over a span, in about this many points at most. Extremes are always kept.

        Raises:
            KeyError: no such node.
        """
        live = self._recorder()
        number = self._reading.number(node)
        if number is None and (live is None or node not in live.nodes):
            raise KeyError(node)
        from_s, to_s = from_ms // 1_000, max(from_ms // 1_000 + 1, to_ms // 1_000)
        wanted_s = max(1, (to_s - from_s) // max(1, points))
        first = max((step for step in STEPS_S if step <= wanted_s), default=1)
        oldest = self.bounds().steps_ms
        while (coarser := _coarser(first)) and oldest.get(coarser * 1_000, MANY) < oldest.get(first * 1_000, 0):
            if from_s * 1_000 >= oldest[first * 1_000]:
                break
            first = coarser
        each_s = -(-wanted_s // first) * first
        gathered = Gathered(node, from_s // each_s * each_s, to_s, each_s)
        covered_s = gathered.from_s
        for step_s in reversed(STEPS_S[: STEPS_S.index(first) + 1]):
            if number is not None:
                covered_s = self._gather(gathered, number, step_s, covered_s, to_s)
        stored_s = self._reading.stored_s()
        first_s = 0 if live is None else max(stored_s, live.begin_s)  # 0 before the first minute is stored
        begins = range(0) if live is None else range(first_s // POINTS * POINTS, live.second_s, POINTS)
        for begin in begins:
            block = None if live is None else live.blocks(begin).get(node)
            if block is not None:
                gathered.add(block, 1, begin, max(gathered.from_s, stored_s))
        return gathered.series()

    def _gather(self, gathered: Gathered, number: int, step_s: int, from_s: int, to_s: int) -> int:
        """Add the blocks of one resolution; returns the time that they reach."""
        span_s = step_s * POINTS
        begins = range(from_s // span_s * span_s, to_s, span_s)
        keys = {block_key(begin, step_s, number): begin for begin in begins}
        for part in some(list(keys), 500):
            for key, block in blocks_of(self._reading.all(blocks_asked(step_s, part), *part)).items():
                gathered.add(block, step_s, keys[key], from_s)
        if step_s == 1:
            return self._reading.stored_s()
        done = self._reading.one("SELECT value FROM meta WHERE name = ?", f"rolled_{step_s}")
        return max(from_s, int(done[0])) if done else from_s

    # Explanations.

    def decision_at(self, node: str, at_ms: int, others: Sequence[Record] = ()) -> Decision | None:
        """Return the arithmetic in force at a moment; None: unknown.

        Args:
            node: its name.
            at_ms: the moment.
            others: records of ``elsewhere``, as far as Kafka still has them.
        """
        kept = self._decisions.kept(node, at_ms)
        return self._decided(node, at_ms, kept, [*others, *self._decisions.live(node, at_ms)])

    def elsewhere(self, node: str, at_ms: int) -> Mapping[Place, int]:
        """Return the offsets of records behind a node's figures that are not in the history."""
        row = self.row_at(node, at_ms)
        here = {*map(placed, self._decisions.kept(node, at_ms)), *map(placed, self._decisions.live(node, at_ms))}
        places = () if row is None else row.places.values()
        return {Place(topic, number): offset for topic, number, offset in places if (topic, number, offset) not in here}

    def shadow_at(self, node: str, at_ms: int) -> Decision | None:
        """Return the same by the shadow policy; None: there is none."""
        return self._decided(node, at_ms, self._decisions.kept(node, at_ms, shadow=True), ())

    def sold_at(self, node: str, at_ms: int, *, shadow: bool = False) -> NodeAllocatable | None:
        """Return the newest kept allocatable, of the policy or its shadow; None: none."""
        record = self._decisions.allocatable(node, at_ms, shadow=shadow)
        return None if record is None else decode(record.value, NodeAllocatable)

    def _decided(self, node: str, at_ms: int, kept: Sequence[Record], others: Sequence[Record]) -> Decision | None:
        def age_ms(asked_ms: int) -> int | None:
            row = self.row_at(node, asked_ms)
            return None if row is None else row.age_ms

        return decided(node, at_ms, kept, others, self._entries(POLICY.name, 0, at_ms), age_ms)

    # Records.

    def sought(self, of: str, node: str, at_ms: int) -> Sequence[Mapping[Place, int]]:
        """Return offsets in Kafka that may have the records of ``records``, one mapping per request."""
        return self._traces.sought(of, node, at_ms)

    def records(self, of: str, node: str, at_ms: int, others: Sequence[Record] = ()) -> Sequence[Record]:
        """Return the records of a trace (by traceparent or trace id), or one record by ``TOPIC PARTITION:OFFSET``.

        Args:
            of: the trace or position.
            node: the trace's node; "": unknown.
            at_ms: a moment at which the node existed.
            others: records from Kafka, of ``sought`` or ``elsewhere``.
        """
        found = [*self._traces.kept(of, node, at_ms), *others]
        if (place := place_in(of)) is not None:
            return [one for one in found if placed(one) == (*place[0], place[1])][:1]
        return traced(found, trace) if (trace := trace_in(of)) else []

    def policy_at(self, at_ms: int) -> PolicyAt | None:
        """Return the policy in force; None: none was recorded."""
        found, refused = policy_of(self._entries(POLICY.name, 0, at_ms))
        return None if found is None else PolicyAt(policy=found.body, place=found.place, refused=refused)

    # The file.

    def _entries(self, topic: str, from_ms: int, to_ms: int) -> list[Record]:
        asked = "SELECT record FROM entry WHERE topic = ? AND at_ms >= ? AND at_ms <= ? ORDER BY at_ms"
        found = [record_of(blob) for (blob,) in self._reading.all(asked, topic, from_ms, to_ms)]
        live = (one.record for one in self._live_entries())
        return found + [one for one in live if one.topic == topic and from_ms <= one.timestamp_ms <= to_ms]

    def _live_entries(self) -> list[Entry]:
        live = self._recorder()
        return [] if live is None else live.unstored()


def _is_eviction(record: Record) -> bool:
    act = decode(record.value, NodeOutcome)
    return act.pod is not None and act.spent is not None and act.result == "applied"


def _coarser(step_s: int) -> int:
    return next((one for one in STEPS_S if one > step_s), 0)
