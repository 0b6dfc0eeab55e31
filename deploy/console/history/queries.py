"""Queries on the history: the store's file and the current minute. Calls block on disk: use a thread."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from slacktide.deploy.console.history.decisions import Decisions
from slacktide.deploy.console.history.file import block_key, blocks_asked, blocks_of, readable, sound
from slacktide.deploy.console.history.follower import LogRecords
from slacktide.deploy.console.history.minute import TICK_MS
from slacktide.deploy.console.history.moments import Moments, Traces, problems_of
from slacktide.deploy.console.history.points import POINTS, STEPS_S, Gathered
from slacktide.deploy.console.history.reading import Objects, Pods, Reading, placed, some
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.deploy.console.history.store import SIZE_BYTES_MAX
from slacktide.deploy.console.history.view import Bounds, Gap, Lag, NodeRow, Problem, Series, TopicRate
from slacktide.deploy.runtime.text import count
from slacktide.schemas.codec import decode
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy
from slacktide.schemas.tick import WorkerTick
from slacktide.schemas.topics import DEAD_LETTER, OUTCOME, POLICY, SAMPLE, TICK
from slacktide.streams.analysis.explain.evidence import WORST_FIRST, Logged, severity_of
from slacktide.streams.analysis.explain.node_log import policy_of
from slacktide.streams.records import Record

LOOKED_BACK_MS = 30_000
DEAD_LETTER_MS = 60_000
LAG_MIN = 1_000
"""A worker with a smaller lag keeps up."""
MANY = 1 << 62


class History:
    """Reads the file, with or without a follower that writes to it. Each thread has its own connection.

    ``recorder`` has the current minute, ``log`` reads records that are not in the history, ``report`` gets the damage
    of the file, ``partitions`` is the number of partitions of topics keyed by node.
    """

    def __init__(
        self,
        path: Path,
        recorder: Callable[[], Recorder] = lambda: Recorder(0),
        log: LogRecords | None = None,
        *,
        report: Callable[[str], None] = lambda _: None,
        partitions: int = 12,
        size_bytes_max: int = SIZE_BYTES_MAX,
    ) -> None:
        self._size_bytes_max = size_bytes_max
        self.log = log or LogRecords(None)
        self._reading = Reading(path, recorder, report)
        self._moments = Moments(self._reading, partitions)
        self.decisions = Decisions(self._reading, self._moments)
        self.traces = Traces(self._reading, self._moments)
        self.objects = Objects(self._reading)
        """Jobs, queue, credit and services."""
        self.pods = Pods(self._reading)

    # Extent.

    def bounds(self) -> Bounds:
        """Return the oldest and newest moment, and known gaps."""
        oldest = {step_s: self._reading.oldest_s(step_s) for step_s in STEPS_S}
        steps = {step_s * 1_000: begin_s * 1_000 for step_s, begin_s in oldest.items() if begin_s is not None}
        live, path = self._reading.live(), self._reading.path
        if live.has_any and not steps:
            steps[1_000] = live.begin_s * 1_000
        rows = sound(self._reading.all("SELECT * FROM gap ORDER BY 1"), int, int, str, str)
        return Bounds(
            oldest_ms=min(steps.values(), default=None),
            newest_ms=(self._reading.newest_s() - 1) * 1_000 if steps else None,
            steps_ms=steps,
            gaps=[Gap(from_ms=a, to_ms=b, what=c, reason=d) for a, b, c, d in rows],
            size_bytes=path.stat().st_size if path.exists() else 0,
            size_bytes_max=self._size_bytes_max,
        )

    def nodes(self) -> Sequence[str]:
        """Return the names of all known nodes."""
        return sorted(self._reading.nodes())

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
        """Return problems at a moment, worst first: nodes (``rows``, if known), lag, dead letters of a minute, gaps."""
        found = [problem for row in (self.cluster_at(at_ms) if rows is None else rows) for problem in problems_of(row)]
        found += (
            _problem("history.missing", "missing", f"not recorded: {gap.what}: {gap.reason}")
            for gap in self.bounds().gaps
            if gap.from_ms <= at_ms < gap.to_ms
        )
        for lag in self.lag_at(at_ms):
            if lag.lag is not None and lag.lag >= LAG_MIN:
                text = f"worker {lag.worker} lags {lag.lag:,} records in {lag.topic} {lag.partition}"
                found.append(_problem("worker.lags", "lag", text))
        if dead_letters := self.dead_letters(at_ms - DEAD_LETTER_MS, at_ms):
            text = f"{count(len(dead_letters), 'dead letter')} in the last minute; see slacktide dead-letter list"
            found.append(_problem("letters.new", "dead-letters", text, placed(dead_letters[0])))
        return sorted(found, key=lambda one: (WORST_FIRST.index(one.severity), one.node, one.name))

    def evicted(self, from_ms: int, to_ms: int) -> Sequence[Record]:
        """Return the outcomes of completed evictions in a span, oldest first."""
        records = self._reading.entries(OUTCOME.name, from_ms, to_ms)
        acts = readable(lambda record: (record, decode(record.value, NodeOutcome)), records)
        return [one for one, act in acts if act.pod is not None and act.spent is not None and act.result == "applied"]

    def lag_at(self, at_ms: int) -> Sequence[Lag]:
        """Return the lag of workers, by their last ticks within the 30 s before."""
        found: dict[tuple[str, str, int], Lag] = {}
        records = self._reading.entries(TICK.name, at_ms - LOOKED_BACK_MS - TICK_MS, at_ms + TICK_MS)
        for record, tick in readable(lambda record: (record, decode(record.value, WorkerTick)), records):
            if record.timestamp_ms > at_ms and found:
                break
            for one in tick.partitions:
                found[tick.worker, SAMPLE.name, one.partition] = Lag(
                    worker=tick.worker, topic=SAMPLE.name, partition=one.partition, position=one.position, end=one.end,
                    at_ms=record.timestamp_ms,
                )  # fmt: skip
        return [found[key] for key in sorted(found)]

    def topics_at(self, at_ms: int) -> Sequence[TopicRate]:
        """Return the records per topic in the last complete minute, else in the first one so far."""
        minute = min(at_ms // 60_000, self._reading.stored_s() // 60) - 1
        asked = "SELECT topic, records FROM rate WHERE minute = ? ORDER BY topic"
        rates = list(sound(self._reading.all(asked, minute), str, int))
        if not rates and not self._reading.stored_s():
            rates = sorted(self._reading.live().rates.items())
        ends = dict(sound(self._reading.all("SELECT topic, sum(next) FROM cursor GROUP BY topic"), str, int))
        return [TopicRate(topic=topic, records=count, newest_offset=ends.get(topic, 0)) for topic, count in rates]

    def cursors(self, topic: str) -> Sequence[tuple[int, int]]:
        """Return the offset after the newest stored record for each partition of a topic."""
        asked = "SELECT partition, next FROM cursor WHERE topic = ? ORDER BY partition"
        return [(number, following) for number, following in sound(self._reading.all(asked, topic), int, int)]

    def dead_letters(self, from_ms: int, to_ms: int, most: int = 200) -> Sequence[Record]:
        """Return the dead letters of a span, newest first."""
        return list(reversed(self._reading.entries(DEAD_LETTER.name, from_ms, to_ms)))[:most]

    # One node over time.

    def node_series(self, node: str, from_ms: int, to_ms: int, points: int) -> Series:
        """Return one node over a span, in about this many points at most, with extremes. Raises KeyError if unknown."""
        number = self._reading.number(node)
        if number is None and node not in self._reading.live().nodes:
            raise KeyError(node)
        from_s, to_s = from_ms // 1_000, max(from_ms // 1_000 + 1, to_ms // 1_000)
        wanted_s = max(1, (to_s - from_s) // max(1, points))
        first = max((step for step in STEPS_S if step <= wanted_s), default=1)
        oldest, coarser_of = self.bounds().steps_ms, dict(pairwise(STEPS_S))
        while (coarser := coarser_of.get(first)) and oldest.get(coarser * 1_000, MANY) < oldest.get(first * 1_000, 0):
            if from_s * 1_000 >= oldest[first * 1_000]:
                break
            first = coarser
        each_s = -(-wanted_s // first) * first
        gathered = Gathered(node, from_s // each_s * each_s, to_s, each_s)
        covered_s = gathered.from_s
        for step_s in reversed(STEPS_S[: STEPS_S.index(first) + 1]):
            if number is not None:
                covered_s = self._gather(gathered, number, step_s, covered_s, to_s)
        for begin_s, block in self._reading.unstored_blocks(node):
            gathered.add(block, 1, begin_s, max(gathered.from_s, self._reading.stored_s()))
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
        return max(from_s, done[0]) if done and isinstance(done[0], int) else from_s

    def policy_at(self, at_ms: int) -> tuple[Logged[Policy] | None, str]:
        """Return the policy in force, and why the newest record, or the operator's newest file, is not; "": it is."""
        return policy_of(self._reading.entries(POLICY.name, 0, at_ms))


def _problem(fact: str, name: str, text: str, place: tuple[str, int, int] | None = None) -> Problem:
    return Problem(severity=severity_of(fact), name=name, node="", text=text, place=place)
