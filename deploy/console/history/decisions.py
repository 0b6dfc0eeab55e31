"""Records that explain a node at a moment: from the history, and others from Kafka."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slacktide.deploy.console.history.file import readable
from slacktide.deploy.console.history.minute import Kept, unpack_kept
from slacktide.deploy.console.history.moments import Moments
from slacktide.deploy.console.history.reading import Reading, placed
from slacktide.deploy.console.history.view import Decision
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    INVENTORY,
    METRIC,
    OUTCOME,
    POLICY,
    SAMPLE,
    SCORE,
    SHADOW_ALLOCATABLE,
)
from slacktide.streams.analysis.explain.node import explain_node
from slacktide.streams.analysis.explain.node_log import node_log
from slacktide.streams.records import Place, Record
from slacktide.streams.worker.takeover import CARRIES

_EXPLAINING = tuple(one.name for one in (SAMPLE, INVENTORY, METRIC, ALLOCATABLE, COMMAND, OUTCOME, SCORE))
_SHADOWED = (*(one for one in _EXPLAINING if one != ALLOCATABLE.name), SHADOW_ALLOCATABLE.name)


class Decisions:
    """Explains nodes by kept records of the file and of the current minute."""

    def __init__(self, reading: Reading, moments: Moments) -> None:
        self._reading = reading
        self._moments = moments

    def at(self, node: str, at_ms: int, others: Sequence[Record] = ()) -> Decision | None:
        """Return the arithmetic in force at a moment; ``others``: records of ``elsewhere``. None: unknown."""
        return self._explained(node, at_ms, [*self._kept(node, at_ms, _EXPLAINING), *others, *self._live(node, at_ms)])

    def shadow_at(self, node: str, at_ms: int) -> Decision | None:
        """Return the same by the shadow policy; None: there is none."""
        there = self._kept(node, at_ms, (SHADOW_ALLOCATABLE.name,))
        return self._explained(node, at_ms, self._kept(node, at_ms, _SHADOWED)) if there else None

    def elsewhere(self, node: str, at_ms: int) -> Mapping[Place, int]:
        """Return the offsets of records behind a node's figures that are not in the history."""
        row = self._moments.one(node, at_ms // 1_000)
        here = {placed(one) for one in (*self._kept(node, at_ms, _EXPLAINING), *self._live(node, at_ms))}
        places = () if row is None else row.places.values()
        return {Place(topic, number): offset for topic, number, offset in places if (topic, number, offset) not in here}

    def offered_at(self, node: str, at_ms: int, *, shadow: bool = False) -> NodeAllocatable | None:
        """Return the newest kept allocatable, of the policy or its shadow; None: none."""
        found = self._kept(node, at_ms, ((SHADOW_ALLOCATABLE if shadow else ALLOCATABLE).name,))
        return next(readable(lambda one: decode(one.value, NodeAllocatable), found[:1]), None)

    def _explained(self, node: str, at_ms: int, records: Iterable[Record]) -> Decision | None:
        """Explain records that are not later than the moment; None: there are none."""
        known = {placed(one): one for one in records}
        records = sorted(known.values(), key=lambda one: one.timestamp_ms)
        if not records:
            return None
        asked_ms = records[-1].timestamp_ms
        shown = [
            msgspec.structs.replace(one, topic=ALLOCATABLE.name) if one.topic == SHADOW_ALLOCATABLE.name else one
            for one in records
        ]
        row = self._moments.one(node, asked_ms // 1_000)
        covered = {} if row is None or row.age_ms is None else {(METRIC.name, node): asked_ms - row.age_ms}
        found = node_log(node, [*self._reading.entries(POLICY.name, 0, at_ms), *shown], covered)
        return Decision(explanation=explain_node(found, asked_ms), records=records)

    def _live(self, node: str, at_ms: int) -> list[Record]:
        """Return the newest records of a node, as far as they are not later than the moment."""
        found = self._reading.live().nodes.get(node)
        newest = () if found is None else list(found.latest.values())
        return [one for one in newest if one.topic in _EXPLAINING and one.timestamp_ms <= at_ms]

    def _kept(self, node: str, at_ms: int, topics: Sequence[str]) -> list[Record]:
        """Return the newest kept record per topic, of samples also those with facts and pods, of outcomes some."""
        found: dict[str, list[Record]] = {}
        before: Mapping[str, int] = {}
        _sort(found, (one for one in self._reading.live().kept_of(node) if one.timestamp_ms <= at_ms), topics)
        number = self._reading.number(node)
        if number is not None:
            asked = "SELECT key, records FROM kept WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1"
            last = self._reading.all(asked, number << 32, number << 32 | at_ms // 60_000)
            # A minute's first records may be later than the moment: then the previous ones hold.
            while last and set(topics) - found.keys():
                [(key, blob)] = last
                before, mine = _unpacked(blob, at_ms)
                _sort(found, mine, topics)
                if mine:
                    break
                last = self._reading.all(asked, number << 32, key - 1)
            for topic in topics:  # search earlier minutes for missing records
                seen: set[int] = set()
                minute = before.get(topic)
                while minute is not None and minute not in seen and _lacking(topic, found.get(topic, ())):
                    seen.add(minute)
                    rows = self._reading.all("SELECT records FROM kept WHERE key = ?", number << 32 | minute)
                    if not rows:
                        break
                    earlier, mine = _unpacked(rows[0][0], at_ms)
                    _sort(found, mine, (topic,))
                    minute = earlier.get(topic)
        return sorted((one for some in found.values() for one in some), key=lambda one: one.timestamp_ms)


def _unpacked(blob: bytes, at_ms: int) -> tuple[Mapping[str, int], list[Record]]:
    """Decode a minute: by topic the minute before it, and records until a moment. A damaged one has none."""
    block = next(readable(unpack_kept, (blob,)), Kept({}, ()))
    return block.before, [one for one in block.records if one.timestamp_ms <= at_ms]


def _sort(found: dict[str, list[Record]], records: Iterable[Record], topics: Sequence[str]) -> None:
    by_topic: dict[str, list[Record]] = {}
    for one in records:
        if one.topic in topics:
            by_topic.setdefault(one.topic, []).append(one)
    for topic, some in by_topic.items():
        held = found.get(topic, [])
        if topic == OUTCOME.name:
            found[topic] = [*some, *held]
        elif topic == SAMPLE.name:
            lacking = _lacking(topic, held)
            last = {mark: at for at, one in enumerate(some) for mark in lacking if mark in (one.value or b"")}
            places = {*last.values()} if held else {*last.values(), len(some) - 1}
            found[topic] = [*(some[at] for at in sorted(places)), *held]
        elif not held:
            found[topic] = some[-1:]


def _lacking(topic: str, found: Sequence[Record]) -> Sequence[bytes]:
    """Return what is missing of a topic: any record, or of samples those with facts and with the pod list."""
    if topic == SAMPLE.name:
        return [mark for mark in CARRIES if not any(mark in (one.value or b"") for one in found)]
    return () if found else (b"",)
