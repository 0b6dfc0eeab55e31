"""The history asked: the store's file, and the minute that is not stored yet. Calls take no network: use a thread."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from slacktide.deploy.console.history.gathered import Gathered
from slacktide.deploy.console.history.node_figures import ORIGINS, SEVERITIES
from slacktide.deploy.console.history.pod_events import events_of, is_named
from slacktide.deploy.console.history.points import AT, POINTS, STEPS_S, point, unpack
from slacktide.deploy.console.history.recorder import TICK_MS, Entry, Recorder
from slacktide.deploy.console.history.store import (
    NODE_BITS,
    SIZE_BYTES_MAX,
    StoreError,
    block_key,
    blocks_asked,
    blocks_of,
    connect,
    unpack_kept,
)
from slacktide.deploy.console.history.view import (
    NONE,
    STATES,
    Bounds,
    Decision,
    Gap,
    Lag,
    NodeRow,
    PodEvent,
    PolicyAt,
    Problem,
    Series,
    TopicRate,
)
from slacktide.schemas.codec import decode
from slacktide.schemas.headers import traceparent
from slacktide.schemas.tick import WorkerTick
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    DEAD_LETTER,
    INVENTORY,
    METRIC,
    OUTCOME,
    POLICY,
    SAMPLES,
    SHADOW_ALLOCATABLE,
    TICK,
    Topic,
)
from slacktide.streams.explain.node import explain_node
from slacktide.streams.explain.node_log import node_log, policy_of
from slacktide.streams.kafka import partition_of
from slacktide.streams.records import Record
from slacktide.streams.rows import SAMPLE_NAMES

LOOKED_BACK_MS = 30_000
DEAD_LETTER_MS = 60_000
POD_MS = 24 * 3_600_000
LAG_MIN = 1_000
"""Records: below it a worker keeps up."""
MANY = 1 << 62
_RANK = {one: -SEVERITIES.index(one) for one in SEVERITIES}
_EXPLAINING = (
    *(one.name for one in SAMPLES),
    INVENTORY.name,
    METRIC.name,
    ALLOCATABLE.name,
    COMMAND.name,
    OUTCOME.name,
)
_FIELDS = (
    "age_ms", "capacity_cpu_milli", "capacity_mem_bytes", "used_cpu_milli", "used_mem_bytes", "ls_cpu_milli",
    "be_cpu_milli", "system_cpu_milli", "be_mem_bytes", "sold_cpu_milli", "sold_mem_bytes", "requested_cpu_milli",
    "requested_mem_bytes", "ceiling_cpu_milli", "limit_cpu_milli", "ls_stall_permille", "slack_won_cpu_milli",
    "decided_ms",
)  # fmt: skip


class History:
    """Reads the file that a follower writes to, or one that nobody writes to any more.

    Each thread has a connection of its own.

    Args:
        path: the file.
        recorder: gives the recorder whose unfinished minute belongs to the history; None: there is none.
        partitions: of the topics that are keyed by node.
        size_bytes_max: of the file, for ``bounds``.

    """

    def __init__(
        self,
        path: Path,
        recorder: Callable[[], Recorder | None] = lambda: None,
        *,
        partitions: int = 12,
        size_bytes_max: int = SIZE_BYTES_MAX,
    ) -> None:
        self._path = path
        self._recorder = recorder
        self._partitions = partitions
        self._size_bytes_max = size_bytes_max
        self._of_thread = threading.local()
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._texts: list[str] = []
        self._places: dict[str, int] = {}
        """By node, its partition."""

    # What there is.

    def bounds(self) -> Bounds:
        """Oldest and newest moment, and what is known to be missing."""
        steps: dict[int, int] = {}
        for step_s in STEPS_S:
            found = self._one(f"SELECT min(key) FROM p{step_s}")  # noqa: S608 - our own names
            if found and found[0] is not None:
                steps[step_s * 1_000] = (found[0] >> NODE_BITS) * step_s * POINTS * 1_000
        stored_s = self._stored_s()
        live = self._recorder()
        newest_s = stored_s if live is None or not live.nodes else live.second_s
        if live is not None and live.nodes and not steps:
            steps[1_000] = live.begin_s * 1_000
        gaps = [Gap(from_ms=a, to_ms=b, what=c, reason=d) for a, b, c, d in self._all("SELECT * FROM gap ORDER BY 1")]
        return Bounds(
            oldest_ms=min(steps.values(), default=None),
            newest_ms=(newest_s - 1) * 1_000 if steps else None,
            steps_ms=steps,
            gaps=gaps,
            size_bytes=self._path.stat().st_size if self._path.exists() else 0,
            size_bytes_max=self._size_bytes_max,
        )

    def nodes(self) -> Sequence[str]:
        """Every node that the history knows, by name."""
        live = self._recorder()
        self._learn()
        return sorted({*self._ids, *(() if live is None else live.nodes)})

    # All nodes at a moment.

    def cluster_at(self, at_ms: int) -> Sequence[NodeRow]:
        """All nodes at a moment, by name, at the best resolution that is kept; empty where nothing was recorded."""
        found = self._at(at_ms // 1_000)
        return [] if found is None else sorted(found, key=lambda row: row.node)

    def _at(self, at_s: int) -> list[NodeRow] | None:
        live = self._recorder()
        if live is not None and at_s >= self._stored_s():
            at_s = min(at_s, live.second_s - 1)  # the second that is being filled is not over
            if at_s >= self._stored_s():
                slot, texts, blocks = at_s % POINTS, list(live.texts), live.blocks(at_s // POINTS * POINTS)
                live_rows = {name: [column[slot] for column in block] for name, block in blocks.items()}
                return [self._row(name, at_s, 1, row, texts) for name, row in live_rows.items() if row[0] > 0]
        self._learn()
        for step_s in STEPS_S:
            begin, slot = block_key(at_s, step_s, 0), at_s // step_s % POINTS
            asked = f"SELECT key, points FROM p{step_s} WHERE key >= ? AND key < ?"  # noqa: S608 - our own names
            blobs = self._all(asked, begin, begin + (1 << NODE_BITS))
            rows = {key & ((1 << NODE_BITS) - 1): point(blob, slot) for key, blob in blobs}
            found = [
                self._row(self._names[node], at_s // step_s * step_s, step_s, row, self._texts)
                for node, row in rows.items()
                if row[0] > 0 and node in self._names
            ]
            if found:
                return found
        return None

    def _row(self, name: str, at_s: int, step_s: int, row: Sequence[int], texts: Sequence[str]) -> NodeRow:
        at = AT[step_s]

        def value(column: str) -> int | None:
            found = row[at[column]]
            return None if found == NONE else found

        def text(column: str) -> str:
            number = row[at[column]]
            return texts[number] if 0 <= number < len(texts) else ""

        figures: dict[str, Any] = {field: value(field) for field in _FIELDS}
        pressure, topic = value("cpu_some"), value("sample_topic")
        offsets = {
            "sample": (SAMPLES[topic or 0].name, value("sample_offset")),
            "metric": (METRIC.name, value("metric_offset")),
            "allocatable": (ALLOCATABLE.name, value("allocatable_offset")),
            "command": (COMMAND.name, value("command_offset")),
            "outcome": (OUTCOME.name, value("outcome_offset")),
        }
        partition = self._places.get(name)
        if partition is None:
            partition = self._places[name] = partition_of(name, self._partitions)
        return NodeRow(
            node=name,
            at_ms=at_s * 1_000,
            state=STATES[max(0, row[at["state"]])],
            severity=SEVERITIES[max(0, row[at["severity"]])],
            why=text("why"),
            cpu_some_pct=None if pressure is None else pressure / 100,
            decided_by=ORIGINS[max(0, row[at["origin"]])],
            evictions=max(0, row[at["evictions"]]),
            policy_version=text("policy"),
            places={name: (topic, partition, of) for name, (topic, of) in offsets.items() if of is not None},
            **figures,
        )

    # What is wrong.

    def problems_at(self, at_ms: int) -> Sequence[Problem]:
        """What was wrong at a moment: nodes, lag, dead letters of the last minute, a gap; the worst first."""
        return sorted(self._problems(at_ms), key=lambda one: (_RANK[one.severity], one.node, one.name))

    def _problems(self, at_ms: int) -> Iterator[Problem]:
        for gap in self.bounds().gaps:
            if gap.from_ms <= at_ms < gap.to_ms:
                text = f"not recorded: {gap.what}: {gap.reason}"
                yield Problem(severity="warning", name="missing", node="", text=text)
        for lag in self.lag_at(at_ms):
            if lag.lag is not None and lag.lag >= LAG_MIN:
                text = f"{lag.worker} is {lag.lag:,} records behind in {lag.topic} {lag.partition}"
                yield Problem(severity="warning", name="lag", node="", text=text)
        letters = self.dead_letters(at_ms - DEAD_LETTER_MS, at_ms)
        if letters:
            text = f"{len(letters)} dead letters within the last minute: slacktide dead-letter list shows them"
            yield Problem(severity="warning", name="dead-letters", node="", text=text, place=_tuple(letters[0]))
        for row in self.cluster_at(at_ms):
            yield from _of_node(row)

    def lag_at(self, at_ms: int) -> Sequence[Lag]:
        """How far workers were behind, by their last ticks within 30 s before."""
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
        """How much came of each topic in the minute before."""
        minute = min(at_ms // 60_000, self._stored_s() // 60) - 1
        live = self._recorder()
        if live is not None and self._stored_s() <= at_ms // 1_000:
            rates: Iterable[tuple[str, int]] = sorted(live.rates.items())
        else:
            rates = self._all("SELECT topic, records FROM rate WHERE minute = ? ORDER BY topic", minute)
        ends = dict(self._all("SELECT topic, sum(next) FROM cursor GROUP BY topic"))
        return [TopicRate(topic=topic, records=count, newest_offset=ends.get(topic, 0)) for topic, count in rates]

    def dead_letters(self, from_ms: int, to_ms: int, most: int = 200) -> Sequence[Record]:
        """Dead letters of a span, the newest first."""
        return list(reversed(self._entries(DEAD_LETTER.name, from_ms, to_ms)))[:most]

    # One node over time.

    def node_series(self, node: str, from_ms: int, to_ms: int, points: int) -> Series:
        """One node over a span, in at most about so many points; extremes are kept whatever the step.

        Raises:
            KeyError: no such node.

        """
        live = self._recorder()
        number = self._number(node)
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
        stored_s = self._stored_s()
        first_s = 0 if live is None else max(stored_s, live.begin_s)  # before the first minute is stored that is 0
        begins = range(0) if live is None else range(first_s // POINTS * POINTS, live.second_s, POINTS)
        for begin in begins:
            block = None if live is None else live.blocks(begin).get(node)
            if block is not None:
                gathered.add(block, 1, begin, max(gathered.from_s, stored_s))
        return gathered.series()

    def _gather(self, gathered: Gathered, number: int, step_s: int, from_s: int, to_s: int) -> int:
        """Add the blocks of one resolution; the time up to which there are some."""
        span_s = step_s * POINTS
        begins = range(from_s // span_s * span_s, to_s, span_s)
        keys = {block_key(begin, step_s, number): begin for begin in begins}
        for some in _some(list(keys), 500):
            for key, block in blocks_of(self._all(blocks_asked(step_s, some), *some)).items():
                gathered.add(block, step_s, keys[key], from_s)
        if step_s == 1:
            return self._stored_s()
        done = self._one("SELECT value FROM meta WHERE name = ?", f"rolled_{step_s}")
        return max(from_s, int(done[0])) if done else from_s

    # Why.

    def decision_at(self, node: str, at_ms: int) -> Decision | None:
        """The kept arithmetic in force at a moment; None: nothing is kept of that node and time."""
        return self._decision(node, at_ms, _EXPLAINING)

    def shadow_at(self, node: str, at_ms: int) -> Decision | None:
        """What the shadow policy would sell there; None: no shadow ran."""
        topics = (*(one for one in _EXPLAINING if one != ALLOCATABLE.name), SHADOW_ALLOCATABLE.name)
        found = self._kept(node, at_ms, (SHADOW_ALLOCATABLE.name,))
        return self._decision(node, at_ms, topics) if found else None

    def _decision(self, node: str, at_ms: int, topics: Sequence[str]) -> Decision | None:
        kept = self._kept(node, at_ms, topics)
        if not kept:
            return None
        policies = self._entries(POLICY.name, 0, at_ms)
        asked_ms = max(record.timestamp_ms for record in kept)
        shown = [
            msgspec.structs.replace(one, topic=ALLOCATABLE.name) if one.topic == SHADOW_ALLOCATABLE.name else one
            for one in kept
        ]
        row = self._age(node, asked_ms)
        covered = {} if row is None else {(METRIC.name, node): asked_ms - row}
        found = node_log(node, [*policies, *shown], covered)
        return Decision(node=node, at_ms=at_ms, explanation=explain_node(found, asked_ms), records=kept)

    def _age(self, node: str, at_ms: int) -> int | None:
        series = self.node_series(node, at_ms, at_ms + 1_000, 1)
        ages = [one for one in series.columns["age_ms"] if one != NONE]
        return ages[-1] if ages else None

    def _kept(self, node: str, at_ms: int, topics: Sequence[str]) -> list[Record]:
        """Of each topic the newest kept record, of samples also the newest keyframe, of outcomes the last few."""
        found: dict[str, list[Record]] = {}
        live = self._recorder()
        before: dict[str, int] = {}
        if live is not None:
            self._sort(found, (one for one in live.kept_of(node) if one.timestamp_ms <= at_ms), topics)
        number = self._number(node)
        if number is not None:
            asked = "SELECT key, records FROM kept WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
            last = self._all(asked, number << 32, number << 32 | at_ms // 60_000)
            # A minute's first records may be of later than the moment: then what was kept before it holds.
            while last and set(topics) - found.keys():
                [(key, blob)] = last
                block = unpack_kept(blob)
                self._sort(found, (one for one in block.records if one.timestamp_ms <= at_ms), topics)
                before = block.before
                if found:
                    break
                last = self._all(asked, number << 32, key - 1)
            self._fill(found, number, before, at_ms, topics)
        return sorted((one for some in found.values() for one in some), key=lambda one: one.timestamp_ms)

    def _fill(self, found: dict[str, list[Record]], number: int, before: dict[str, int], at_ms: int,
              topics: Sequence[str]) -> None:  # fmt: skip
        """Go back to the minutes where what is still wanted was kept last."""
        for topic in topics:
            seen: set[int] = set()
            minute = before.get(topic)
            while _wanted(topic, found) and minute is not None and minute not in seen:
                seen.add(minute)
                rows = self._all("SELECT records FROM kept WHERE key = ?", number << 32 | minute)
                if not rows:
                    break
                block = unpack_kept(rows[0][0])
                self._sort(found, (one for one in block.records if one.timestamp_ms <= at_ms), (topic,))
                minute = block.before.get(topic)

    def _sort(self, found: dict[str, list[Record]], records: Iterable[Record], topics: Sequence[str]) -> None:
        by_topic: dict[str, list[Record]] = {}
        for one in records:
            if one.topic in topics:
                by_topic.setdefault(one.topic, []).append(one)
        for topic, some in by_topic.items():
            if topic == OUTCOME.name:
                found[topic] = [*some, *found.get(topic, [])]
            elif topic in SAMPLE_NAMES:
                keyframes = [one for one in some if _is_keyframe(one)][-1:]
                held = found.get(topic, [])
                new = [] if any(map(_is_keyframe, held)) else keyframes
                newest = [] if held else [one for one in some[-1:] if one not in new]
                found[topic] = [*new, *newest, *held]
            elif topic not in found:
                found[topic] = some[-1:]

    # Pods and records.

    def pod_events(self, pod: str, from_ms: int, to_ms: int) -> Sequence[PodEvent]:
        """What happened to a pod, oldest first. ``pod``: NAMESPACE/NAME, NAMESPACE, or a uid."""
        asked = (
            "SELECT DISTINCT record FROM entry JOIN pod ON pod.entry = entry.id "
            "WHERE (pod.name = ? OR pod.name GLOB ?) AND pod.at_ms >= ? AND pod.at_ms < ? ORDER BY pod.at_ms"
        )
        known = [_record(blob) for (blob,) in self._all(asked, pod, f"{_globbed(pod)}/*", from_ms, to_ms)]
        live = [one.record for one in self._live_entries() if any(is_named(name, pod) for name in one.names)]
        known += [one for one in live if from_ms <= one.timestamp_ms < to_ms]
        return [event for record in known for event in events_of(record, pod)]

    def pods(self, at_ms: int, most: int = 1_000) -> Sequence[str]:
        """NAMESPACE/NAME of pods of which something is kept near a moment (a day before it)."""
        asked = "SELECT DISTINCT name FROM pod WHERE at_ms > ? AND at_ms <= ? AND name LIKE '%/%' ORDER BY name LIMIT ?"
        live = {name for one in self._live_entries() for name in one.names if "/" in name}
        return sorted({*(name for (name,) in self._all(asked, at_ms - POD_MS, at_ms, most)), *live})[:most]

    def records(self, of: str) -> Sequence[Record]:
        """Records of one trace (the trace id of a traceparent), or one record by ``TOPIC PARTITION:OFFSET``."""
        topic, _, place = of.partition(" ")
        if place:
            partition, _, offset = place.partition(":")
            asked = "SELECT record FROM entry WHERE topic = ? AND partition = ? AND offset = ?"
            found = [_record(blob) for (blob,) in self._all(asked, topic, int(partition), int(offset))]
            return found or [
                one.record for one in self._live_entries() if _tuple(one.record) == (topic, int(partition), int(offset))
            ]
        trace = of.split("-")[1] if of.count("-") == 3 else of
        return self._traced(trace)

    def _traced(self, trace: str) -> list[Record]:
        """The boot of the trace, the time at which its sample came, and what was kept about then."""
        live = self._recorder()
        self._learn()
        texts = list(live.texts) if live is not None else self._texts
        boots = {number: text for number, text in enumerate(texts) if text}
        for node in self.nodes():
            mine = {
                number
                for number, text in boots.items()
                if traceparent(f"{node}/{text}", "", "")[3:19] == trace[:16].encode()
            }
            if mine:
                return self._of_trace(node, trace, self._came_s(node, mine, int(trace[16:], 16)))
        return []

    def _of_trace(self, node: str, trace: str, at_s: int) -> list[Record]:
        near: list[Record] = []
        number, live = self._number(node), self._recorder()
        if number is not None:
            keys = number << 32 | at_s // 60 - 2, number << 32 | at_s // 60 + 2
            rows = self._all("SELECT records FROM kept WHERE key BETWEEN ? AND ? ORDER BY key", *keys)
            near = [one for (blob,) in rows for one in unpack_kept(blob).records]
        near += [] if live is None else live.kept_of(node)
        part = f"-{trace}-".encode()
        found = {_tuple(one): one for one in near if any(part in value for _, value in one.headers)}
        return sorted(found.values(), key=lambda one: one.timestamp_ms)

    def _came_s(self, node: str, boots: set[int], seq: int) -> int:
        """When a boot's sample came: seqs rise with time within a boot. By the best resolution that has it."""
        live, number = self._recorder(), self._number(node)
        for step_s in STEPS_S if number is not None else ():
            span_s = step_s * POINTS
            asked = f"SELECT key, points FROM p{step_s} WHERE key & ? = ? ORDER BY key"  # noqa: S608
            for key, blob in self._all(asked, (1 << NODE_BITS) - 1, number):
                block = unpack(blob)
                if block[AT[step_s]["boot"]][-1] in boots and max(block[AT[step_s]["seq"]]) >= seq:
                    slot = next(at for at, one in enumerate(block[AT[step_s]["seq"]]) if one >= seq)
                    return int(key >> NODE_BITS) * span_s + slot * step_s
        return 0 if live is None else live.second_s

    def policy_at(self, at_ms: int) -> PolicyAt | None:
        """The policy in force; None: none was recorded."""
        found, refused = policy_of(self._entries(POLICY.name, 0, at_ms))
        return None if found is None else PolicyAt(policy=found.body, place=found.place, refused=refused)

    # What is live alone.

    def latest(self, *topics: Topic) -> list[Record]:
        """The newest record of each key of these topics, as they stand now; empty: none came, or nobody follows."""
        live = self._recorder()
        return [] if live is None else live.latest.of(*topics)

    # The file.

    def _entries(self, topic: str, from_ms: int, to_ms: int) -> list[Record]:
        asked = "SELECT record FROM entry WHERE topic = ? AND at_ms >= ? AND at_ms <= ? ORDER BY at_ms"
        found = [_record(blob) for (blob,) in self._all(asked, topic, from_ms, to_ms)]
        live = (one.record for one in self._live_entries())
        return found + [one for one in live if one.topic == topic and from_ms <= one.timestamp_ms <= to_ms]

    def _live_entries(self) -> list[Entry]:
        live = self._recorder()
        return [] if live is None else live.unstored()

    def _stored_s(self) -> int:
        found = self._one("SELECT value FROM meta WHERE name = 'newest_s'")
        return int(found[0]) if found else 0

    def _number(self, node: str) -> int | None:
        if node not in self._ids:
            self._learn()
        return self._ids.get(node)

    def _learn(self) -> None:
        """New nodes and texts."""
        most = max(self._names, default=0)
        for number, name in self._all("SELECT id, name FROM node WHERE id > ?", most):
            self._ids[name], self._names[number] = number, name
        self._texts += [text for (text,) in self._all("SELECT text FROM text WHERE id >= ? ORDER BY id",
                                                      len(self._texts))]  # fmt: skip

    def _all(self, asked: str, *given: object) -> list[tuple]:  # type: ignore[type-arg]
        if not self._path.exists():
            return []
        db, file = getattr(self._of_thread, "db", (None, 0))
        try:
            if db is None or file != self._path.stat().st_ino:  # it was set aside, and another one took its place
                db = connect(self._path, read_only=True)
                self._of_thread.db = db, self._path.stat().st_ino
            return db.execute(asked, given).fetchall()
        except sqlite3.DatabaseError as exc:
            do = "stop the console and start it again: it sets a damaged file aside and takes over what can be read"
            raise StoreError(f"{self._path}: cannot be read: {exc}; {do}") from exc

    def _one(self, asked: str, *given: object) -> tuple:  # type: ignore[type-arg]
        rows = self._all(asked, *given)
        return rows[0] if rows else ()


def _of_node(row: NodeRow) -> Iterator[Problem]:
    """What is wrong with one node."""
    if row.evictions:
        place = row.places.get("outcome")
        text = f"{row.evictions} evicted"
        yield Problem(severity="warning", name="evictions", node=row.node, text=text, place=place)
    if row.severity != "ok" or row.state != "ok":
        kind = "allocatable" if row.state == "exhausted" else "outcome" if row.state == "guard" else "metric"
        name = row.state if row.state != "ok" else "node"
        yield Problem(severity=row.severity, name=name, node=row.node, text=row.why, place=row.places.get(kind))


def _coarser(step_s: int) -> int:
    """The next resolution; 0: there is none."""
    return next((one for one in STEPS_S if one > step_s), 0)


def _some(keys: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    for begin in range(0, len(keys), most):
        yield keys[begin : begin + most]


def _record(blob: bytes) -> Record:
    return msgspec.msgpack.decode(blob, type=Record)


def _tuple(record: Record) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


def _is_keyframe(record: Record) -> bool:
    value = record.value or b""
    return b'"pods":' in value and b'"facts":' in value


def _wanted(topic: str, found: Mapping[str, Sequence[Record]]) -> bool:
    """Whether nothing of a topic is found, or no keyframe of its samples."""
    return topic not in found or (topic in SAMPLE_NAMES and not any(map(_is_keyframe, found[topic])))


def _globbed(text: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in text)
