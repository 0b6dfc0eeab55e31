"""Reads all nodes or one node at a moment, and finds records by position or trace."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from slacktide.deploy.console.history.file import NODE_BITS, block_key, readable
from slacktide.deploy.console.history.minute import unpack_kept
from slacktide.deploy.console.history.node_figures import ORIGINS, SEVERITIES
from slacktide.deploy.console.history.points import AT, POINTS, STEPS_S, Block, point, unpack
from slacktide.deploy.console.history.reading import Reading, placed, record_of, some
from slacktide.deploy.console.history.recorder import TOPICS
from slacktide.deploy.console.history.store import HORIZON_S
from slacktide.deploy.console.history.view import NONE, STATES, NodeRow, Problem
from slacktide.schemas.headers import traceparent
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, METRIC, OUTCOME, SAMPLE, SCORE
from slacktide.streams.analysis.explain.evidence import severity_of
from slacktide.streams.kafka import partition_of
from slacktide.streams.records import Place, Record

_FIELDS = (
    "age_ms", "capacity_cpu_milli", "capacity_mem_bytes", "used_cpu_milli", "used_mem_bytes", "ls_cpu_milli",
    "be_cpu_milli", "system_cpu_milli", "be_mem_bytes", "sold_cpu_milli", "sold_mem_bytes", "requested_cpu_milli",
    "requested_mem_bytes", "ceiling_cpu_milli", "limit_cpu_milli", "ls_stall_permille", "gained_cpu_milli",
    "decided_ms",
)  # fmt: skip
_FIELDS_AT = tuple((field, AT[field]) for field in _FIELDS)
_OFFSETS_AT = tuple(
    (kind, topic.name, AT[f"{kind}_offset"])
    for kind, topic in {
        "sample": SAMPLE, "metric": METRIC, "allocatable": ALLOCATABLE, "command": COMMAND, "outcome": OUTCOME,
        "score": SCORE,
    }.items()
)  # fmt: skip


def problems_of(row: NodeRow) -> Iterator[Problem]:
    """Yield the problems of one node."""
    if row.evictions:
        place = row.places.get("outcome")
        text = f"{row.evictions} evicted"
        yield Problem(severity=severity_of("evictions"), name="evictions", node=row.node, text=text, place=place)
    if row.severity != "ok" or row.state != "ok":
        kind = "allocatable" if row.state == "exhausted" else "outcome" if row.state == "guard" else "metric"
        name = row.state if row.state != "ok" else "node"
        yield Problem(severity=row.severity, name=name, node=row.node, text=row.why, place=row.places.get(kind))


class Moments:
    """Reads moments from the file and the recorder; ``partitions``: of topics keyed by node."""

    def __init__(self, reading: Reading, partitions: int) -> None:
        self._reading = reading
        self._partitions = partitions
        self._partition: dict[str, int] = {}

    def all(self, at_s: int) -> list[NodeRow]:
        """Return all nodes, unordered; empty: none was recorded."""
        return self._rows(at_s)

    def one(self, node: str, at_s: int) -> NodeRow | None:
        """Return one node; None: it was not recorded."""
        rows = self._rows(at_s, node)
        return rows[0] if rows else None

    def _rows(self, at_s: int, node: str | None = None) -> list[NodeRow]:
        """Return all nodes or one, at the best resolution that has any, or from the recorder if only that has them."""
        live = self._reading.live()
        second_s = min(at_s, live.second_s - 1)  # the current second is incomplete
        if second_s >= self._reading.stored_s():
            slot, texts, blocks = second_s % POINTS, list(live.texts), live.blocks(second_s // POINTS * POINTS)
            chosen = blocks.items() if node is None else [(node, blocks[node])] if node in blocks else []
            points = ((name, [column[slot] for column in block]) for name, block in chosen)
            return [row for name, one in points if (row := self._row(name, second_s, 1, one, texts)) is not None]
        self._reading.learn()
        names, first, last = self._reading.names, 0, 1 << NODE_BITS
        if node is not None:
            if (number := self._reading.number(node)) is None:
                return []
            first, last = number, number + 1
        for step_s in STEPS_S:
            begin, slot = block_key(at_s, step_s, 0), at_s // step_s % POINTS
            asked = f"SELECT key, points FROM p{step_s} WHERE key >= ? AND key < ?"  # noqa: S608 - our own names
            blobs = self._reading.all(asked, begin + first, begin + last)
            named = ((name, blob) for key, blob in blobs if (name := names.get(key & ((1 << NODE_BITS) - 1))))
            rows = readable(lambda one: self._row(one[0], at_s, step_s, point(one[1], slot)), named)  # noqa: B023 - at once
            if found := [row for row in rows if row is not None]:
                return found
        return []

    def _row(
        self, name: str, at_s: int, step_s: int, point: Sequence[int], texts: Sequence[str] | None = None
    ) -> NodeRow | None:
        """Convert a point to a row; None: the follower did not record that second. Default texts: those of the file."""
        if point[0] <= 0:
            return None
        if name not in self._partition:
            self._partition[name] = partition_of(name, self._partitions)
        partition, known = self._partition[name], self._reading.texts if texts is None else texts
        begin_ms = at_s // step_s * step_s * 1_000

        def text(column: str) -> str:
            number = point[AT[column]]
            return known[number] if 0 <= number < len(known) else ""

        figures: dict[str, Any] = {
            field: None if (found := point[place]) == NONE else found for field, place in _FIELDS_AT
        }
        places = {
            kind: (topic, partition, offset) for kind, topic, place in _OFFSETS_AT if (offset := point[place]) != NONE
        }
        pressure = point[AT["cpu_some"]]
        return NodeRow(
            node=name,
            at_ms=begin_ms,
            end_ms=begin_ms + step_s * 1_000 - 1,
            state=STATES[max(0, point[AT["state"]])],
            severity=SEVERITIES[max(0, point[AT["severity"]])],
            why=text("why"),
            cpu_some_pct=None if pressure == NONE else pressure / 100,
            decided_by=ORIGINS[max(0, point[AT["origin"]])],
            evictions=max(0, point[AT["evictions"]]),
            policy_version=text("policy"),
            boot_id=text("boot"),
            places=places,
            **figures,
        )


NEAR_S = 3
"""A command and its outcome follow within this many seconds of the sample."""
PAIRS_MAX = 20_000
"""Limit for nodes by boots to try; beyond it only two moments are searched."""
_PLACE = re.compile(r"(\S+) (\d{1,5}):(\d{1,18})", re.ASCII)
_TRACE = re.compile(r"(?:[0-9a-f]{2}-)?([0-9a-f]{32})(?:-[0-9a-f]{16}-[0-9a-f]{2})?")
_PARTITIONS = {topic.name: topic.partitions for topic in TOPICS}


def place_in(of: str) -> tuple[Place, int] | None:
    """Parse ``TOPIC PARTITION:OFFSET`` of a known topic; None: it is not one."""
    found = _PLACE.fullmatch(of)
    if found is None or int(found[2]) >= _PARTITIONS.get(found[1], 0):
        return None
    return Place(found[1], int(found[2])), int(found[3])


def trace_in(of: str) -> str:
    """Return the trace id of a traceparent, or a bare trace id; "": neither."""
    found = _TRACE.fullmatch(of)
    return "" if found is None else found[1]


class Traces:
    """Finds traces in the file and in the minutes that are not stored yet."""

    def __init__(self, reading: Reading, moments: Moments) -> None:
        self._reading = reading
        self._moments = moments

    def sought(self, of: str, node: str, at_ms: int) -> list[Mapping[Place, int]]:
        """Return offsets in Kafka that may have the records of a position or trace, with one offset per partition.

        ``node`` is the trace's node ("": unknown), ``at_ms`` a moment at which it existed.
        """
        if (found := place_in(of)) is not None:
            return [dict([found])]
        came = self._came(trace_in(of), node, at_ms)
        rows = [] if came is None else [self._moments.one(came[0], came[1] + later) for later in range(NEAR_S)]
        places = [
            [one.places.get(kind) for kind in ("sample", "command", "outcome")] for one in rows if one is not None
        ]
        asked = [{Place(*one[:2]): one[2] for one in each if one is not None} for each in places]
        return [one for at, one in enumerate(asked) if one and one not in asked[:at]]

    def records(self, of: str, node: str, at_ms: int, others: Sequence[Record] = ()) -> Sequence[Record]:
        """Return the records of a trace (by traceparent or trace id), or one record by ``TOPIC PARTITION:OFFSET``.

        ``others`` are records from Kafka; the other arguments are as for ``sought``.
        """
        if (place := place_in(of)) is not None:
            wanted = (*place[0], place[1])
            asked = "SELECT record FROM entry WHERE topic = ? AND partition = ? AND offset = ?"
            stored = list(readable(record_of, self._reading.all(asked, *wanted)))
            here = stored or [one.record for one in self._reading.live().unstored()]
            return [one for one in (*here, *others) if placed(one) == wanted][:1]
        if not (trace := trace_in(of)):
            return []
        came = self._came(trace, node, at_ms)
        found, part = [*([] if came is None else self._near(*came)), *others], f"-{trace}-".encode()
        known = {placed(one): one for one in found if any(part in value for _, value in one.headers)}
        return sorted(known.values(), key=lambda one: one.timestamp_ms)

    def _near(self, node: str, at_s: int) -> list[Record]:
        number, rows = self._reading.number(node), []
        if number is not None:
            keys = number << 32 | at_s // 60 - 2, number << 32 | at_s // 60 + 2
            rows = self._reading.all("SELECT records FROM kept WHERE key BETWEEN ? AND ? ORDER BY key", *keys)
        kept = readable(unpack_kept, (blob for (blob,) in rows))
        return [one for some in kept for one in some.records] + self._reading.live().kept_of(node)

    def _came(self, trace: str, node: str, at_ms: int) -> tuple[str, int] | None:
        """Return the trace's node, and the second of its sample; None: unknown."""
        if not trace:
            return None
        known = self._reading.nodes()
        texts = list(self._reading.live().texts) or self._reading.texts
        if node:
            known &= {node}
        elif len(known) * len(texts) > PAIRS_MAX:  # only the nodes whose boot at that moment, or now, is the trace's
            rows = (row for at_s in (at_ms // 1_000, self._reading.newest_s() - 1) for row in self._moments.all(at_s))
            there = (row.node for row in rows if row.boot_id and _is_of(trace, row.node, row.boot_id))
            known = set(islice(there, 1))
        for name in known:
            boots = {number for number, text in enumerate(texts) if text and _is_of(trace, name, text)}
            if boots:
                came_s = self._came_s(name, boots, int(trace[16:], 16))
                return None if came_s is None else (name, came_s)
        return None

    def _came_s(self, node: str, boots: set[int], seq: int) -> int | None:
        """Return when a boot's sample arrived, at the best resolution. Sequence numbers increase within a boot."""
        best_s, width_s = None, 0
        for step_s in reversed(STEPS_S):
            unstored = self._reading.unstored_blocks(node) if step_s == 1 else ()
            for begin_s, block in chain(self._stored(node, step_s, boots, seq), unstored):
                points = zip(block[AT["boot"]], block[AT["seq"]], strict=True)
                there = (at for at, (boot, one) in enumerate(points) if boot in boots and one >= seq)
                found_s = next((begin_s + at * step_s for at in there), None)
                if found_s is not None:
                    if best_s is None or found_s < best_s + width_s:  # finer points do not reach that far back
                        best_s, width_s = found_s, step_s
                    break
        return best_s

    def _stored(self, node: str, step_s: int, boots: set[int], seq: int) -> Iterator[tuple[int, Block]]:
        """Yield blocks of a node that end with these boots and not before the sample, by time."""
        number, span_s, oldest_s = self._reading.number(node), step_s * POINTS, self._reading.oldest_s(step_s)
        if number is None or oldest_s is None:
            return
        stored_s = self._reading.stored_s()
        begins = range(max(oldest_s, stored_s // span_s * span_s - HORIZON_S[step_s]), stored_s, span_s)
        for part in some([block_key(begin, step_s, number) for begin in begins], 500):
            asked = f"SELECT key, points FROM p{step_s} WHERE key IN ({','.join('?' * len(part))}) ORDER BY key"  # noqa: S608
            lasts = readable(lambda row: (*row, point(row[1], POINTS - 1)), self._reading.all(asked, *part))
            for key, blob, last in lasts:
                if last[AT["boot"]] in boots and last[AT["seq"]] >= seq:
                    for block in readable(unpack, (blob,)):
                        yield (key >> NODE_BITS) * span_s, block


def _is_of(trace: str, node: str, boot: str) -> bool:
    return traceparent(f"{node}/{boot}", "", "")[3:19] == trace[:16].encode()
