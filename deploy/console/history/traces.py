"""Finds records by position, or by trace from sample to outcome."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from slacktide.deploy.console.history.file import NODE_BITS, block_key, readable
from slacktide.deploy.console.history.minute import unpack_kept
from slacktide.deploy.console.history.moments import Moments
from slacktide.deploy.console.history.points import AT, POINTS, STEPS_S, Block, point, unpack
from slacktide.deploy.console.history.reading import Reading, placed, record_of, some
from slacktide.deploy.console.history.recorder import TOPICS
from slacktide.schemas.headers import traceparent
from slacktide.streams.records import Place, Record

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
            found = [*self._at(*wanted), *others]
            return [one for one in found if placed(one) == wanted][:1]
        if not (trace := trace_in(of)):
            return []
        came = self._came(trace, node, at_ms)
        found, part = [*([] if came is None else self._near(*came)), *others], f"-{trace}-".encode()
        known = {placed(one): one for one in found if any(part in value for _, value in one.headers)}
        return sorted(known.values(), key=lambda one: one.timestamp_ms)

    def _at(self, topic: str, partition: int, offset: int) -> list[Record]:
        asked = "SELECT record FROM entry WHERE topic = ? AND partition = ? AND offset = ?"
        found = list(readable(record_of, self._reading.all(asked, topic, partition, offset)))
        return found or [one.record for one in self._reading.live().unstored()]

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
        elif len(known) * len(texts) > PAIRS_MAX:
            known = self._there(trace, at_ms)
        for name in known:
            boots = {number for number, text in enumerate(texts) if text and _is_of(trace, name, text)}
            if boots:
                came_s = self._came_s(name, boots, int(trace[16:], 16))
                return None if came_s is None else (name, came_s)
        return None

    def _there(self, trace: str, at_ms: int) -> set[str]:
        """Return the node whose boot at a moment, or now, is the trace's."""
        for at_s in (at_ms // 1_000, self._reading.newest_s() - 1):
            for row in self._moments.all(at_s):
                if row.boot_id and _is_of(trace, row.node, row.boot_id):
                    return {row.node}
        return set()

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
        begins = range(oldest_s, self._reading.stored_s(), span_s)
        for part in some([block_key(begin, step_s, number) for begin in begins], 500):
            asked = f"SELECT key, points FROM p{step_s} WHERE key IN ({','.join('?' * len(part))}) ORDER BY key"  # noqa: S608
            for key, blob, last in readable(_with_last, self._reading.all(asked, *part)):
                if last[AT["boot"]] in boots and last[AT["seq"]] >= seq:
                    for block in readable(unpack, (blob,)):
                        yield (key >> NODE_BITS) * span_s, block


def _with_last(row: tuple[int, bytes]) -> tuple[int, bytes, Sequence[int]]:
    """Add the last point of a block."""
    key, blob = row
    return key, blob, point(blob, POINTS - 1)


def _is_of(trace: str, node: str, boot: str) -> bool:
    return traceparent(f"{node}/{boot}", "", "")[3:19] == trace[:16].encode()
