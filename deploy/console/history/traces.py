"""Finds records by position, or by trace from sample to outcome."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from slacktide.deploy.console.history.file import NODE_BITS, Reading, block_key, placed, record_of, some
from slacktide.deploy.console.history.minute import unpack_kept
from slacktide.deploy.console.history.moments import Moments
from slacktide.deploy.console.history.points import AT, POINTS, STEPS_S, Block, point, unpack
from slacktide.deploy.console.history.recorder import TOPICS, Recorder
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

    def __init__(self, reading: Reading, recorder: Callable[[], Recorder | None], moments: Moments) -> None:
        self._reading = reading
        self._recorder = recorder
        self._moments = moments

    def sought(self, of: str, node: str, at_ms: int) -> list[Mapping[Place, int]]:
        """Return offsets in Kafka that may have the records: mappings with one offset per partition.

        Args:
            of: a position or a trace.
            node: the trace's node; "": unknown.
            at_ms: a moment at which the trace's node existed.
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

    def kept(self, of: str, node: str, at_ms: int) -> list[Record]:
        """Return the kept records of a position or trace; arguments as for ``sought``."""
        if (found := place_in(of)) is not None:
            return self._at(*found)
        came = self._came(trace_in(of), node, at_ms)
        return [] if came is None else self._near(*came)

    def _at(self, place: Place, offset: int) -> list[Record]:
        asked = "SELECT record FROM entry WHERE topic = ? AND partition = ? AND offset = ?"
        found = [record_of(blob) for (blob,) in self._reading.all(asked, place.topic, place.partition, offset)]
        live = self._recorder()
        unstored = [] if live is None else live.unstored()
        return found or [one.record for one in unstored if placed(one.record) == (*place, offset)]

    def _near(self, node: str, at_s: int) -> list[Record]:
        number, live = self._reading.number(node), self._recorder()
        rows = []
        if number is not None:
            keys = number << 32 | at_s // 60 - 2, number << 32 | at_s // 60 + 2
            rows = self._reading.all("SELECT records FROM kept WHERE key BETWEEN ? AND ? ORDER BY key", *keys)
        near = [one for (blob,) in rows for one in unpack_kept(blob).records]
        return near + ([] if live is None else live.kept_of(node))

    def _came(self, trace: str, node: str, at_ms: int) -> tuple[str, int] | None:
        """Return the trace's node, and the second of its sample; None: unknown."""
        if not trace:
            return None
        live = self._recorder()
        self._reading.learn()
        texts = list(live.texts) if live is not None else self._reading.texts
        known = {*self._reading.names.values(), *(() if live is None else live.nodes)}
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
        for at_s in (at_ms // 1_000, self._newest_s()):
            for row in self._moments.all(at_s):
                if row.boot_id and _is_of(trace, row.node, row.boot_id):
                    return {row.node}
        return set()

    def _newest_s(self) -> int:
        live = self._recorder()
        return (self._reading.stored_s() if live is None or not live.has_any else live.second_s) - 1

    def _came_s(self, node: str, boots: set[int], seq: int) -> int | None:
        """Return when a boot's sample arrived, at the best resolution. Sequence numbers increase within a boot."""
        best_s, width_s = None, 0
        for step_s in reversed(STEPS_S):
            blocks = self._stored(node, step_s, boots, seq) if step_s > 1 else self._fine(node, boots, seq)
            for begin_s, block in blocks:
                found_s = _slot_s(block, step_s, begin_s, boots, seq)
                if found_s is not None:
                    if best_s is None or found_s < best_s + width_s:  # finer points do not reach that far back
                        best_s, width_s = found_s, step_s
                    break
        return best_s

    def _fine(self, node: str, boots: set[int], seq: int) -> Iterator[tuple[int, Block]]:
        yield from self._stored(node, 1, boots, seq)
        live = self._recorder()
        if live is None:
            return
        first_s = max(self._reading.stored_s(), live.begin_s) // POINTS * POINTS
        for begin_s in range(first_s, live.second_s, POINTS):
            if (block := live.blocks(begin_s).get(node)) is not None:
                yield begin_s, block

    def _stored(self, node: str, step_s: int, boots: set[int], seq: int) -> Iterator[tuple[int, Block]]:
        """Yield blocks of a node that end with these boots and not before the sample, by time."""
        number, span_s, of = self._reading.number(node), step_s * POINTS, AT[step_s]
        oldest = self._reading.one(f"SELECT min(key) FROM p{step_s}")  # noqa: S608 - our own names
        if number is None or not oldest or oldest[0] is None:
            return
        begins = range((oldest[0] >> NODE_BITS) * span_s, self._reading.stored_s(), span_s)
        for part in some([block_key(begin, step_s, number) for begin in begins], 500):
            asked = f"SELECT key, points FROM p{step_s} WHERE key IN ({','.join('?' * len(part))}) ORDER BY key"  # noqa: S608
            for key, blob in self._reading.all(asked, *part):
                last = point(blob, POINTS - 1)
                if last[of["boot"]] in boots and last[of["seq"]] >= seq:
                    yield (key >> NODE_BITS) * span_s, unpack(blob)


def _slot_s(block: Block, step_s: int, begin_s: int, boots: set[int], seq: int) -> int | None:
    """Return the first point of these boots with that sample or a later one."""
    of = AT[step_s]
    points = zip(block[of["boot"]], block[of["seq"]], strict=True)
    return next((begin_s + at * step_s for at, (boot, one) in enumerate(points) if boot in boots and one >= seq), None)


def _is_of(trace: str, node: str, boot: str) -> bool:
    return traceparent(f"{node}/{boot}", "", "")[3:19] == trace[:16].encode()


def traced(records: Sequence[Record], trace: str) -> list[Record]:
    """Return the records of a trace, without duplicates, by time."""
    part = f"-{trace}-".encode()
    found = {placed(one): one for one in records if any(part in value for _, value in one.headers)}
    return sorted(found.values(), key=lambda one: one.timestamp_ms)
