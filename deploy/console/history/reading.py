"""Reads the file by threads and the minutes that are not stored yet: blocks, pods, and objects of compacted topics."""

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from slacktide.agents.damage import DATABASE_ERRORS, is_damage
from slacktide.deploy.console.history.file import NODE_BITS, StoreError, connect, numbers_of, readable, sound, texts_of
from slacktide.deploy.console.history.minute import Held, JobRow, Latest, Version
from slacktide.deploy.console.history.points import POINTS, Block
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.deploy.console.history.view import PodEvent
from slacktide.schemas.codec import decode
from slacktide.schemas.descheduling import DeschedulingPass, Victim
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.knob import uid_of
from slacktide.schemas.message import Message
from slacktide.schemas.missed_pod import MissedPod
from slacktide.schemas.outcome import NodeOutcome, PodName
from slacktide.schemas.placement import PodPlacement
from slacktide.schemas.topics import DESCHEDULING, JOB_STATUS, MISSED_POD, OUTCOME, PLACEMENT, Topic
from slacktide.streams.analysis.audit.acts import what
from slacktide.streams.analysis.explain.evidence import place_of
from slacktide.streams.decisions.evict.node_evict import observed
from slacktide.streams.records import Record


class Reading:
    """Reads the file, which may be missing or be replaced, and the recorder, which is empty if nothing is recorded.

    ``report`` gets the damage of the file, for its writer.
    """

    def __init__(self, path: Path, live: Callable[[], Recorder], report: Callable[[str], None]) -> None:
        self.path = path
        self.live = live
        self._report = report
        self.texts: list[str] = []
        """The loaded texts by number."""
        self.names: dict[int, str] = {}
        """Node names by number, as far as loaded."""
        self._ids: dict[str, int] = {}
        self._of_thread = threading.local()

    def all(self, asked: str, *given: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query. Raises StoreError if the file cannot be read."""
        if not self.path.exists():
            return []
        db, file = getattr(self._of_thread, "db", (None, 0))
        try:
            if db is None or file != self.path.stat().st_ino:  # it was replaced
                db = connect(self.path, read_only=True)
                self._of_thread.db = db, self.path.stat().st_ino
            found: list[tuple[Any, ...]] = db.execute(asked, given).fetchall()
        except DATABASE_ERRORS as exc:
            advice = "check the disk"
            if is_damage(exc):
                self._report(str(exc))
                advice = "try again: the console renames a damaged file and recovers its readable rows"
            raise StoreError(f"{self.path}: cannot be read: {exc}; {advice}") from exc
        return found

    def one(self, asked: str, *given: object) -> tuple[Any, ...]:
        """Return the first row; empty: none."""
        rows = self.all(asked, *given)
        return rows[0] if rows else ()

    def stored_s(self) -> int:
        """End of the last stored minute, UTC epoch; 0: none."""
        found = self.one("SELECT value FROM meta WHERE name = 'newest_s'")
        return found[0] if found and isinstance(found[0], int) else 0

    def newest_s(self) -> int:
        """End of the last recorded second, UTC epoch; 0: none."""
        live = self.live()
        return live.second_s if live.has_any else self.stored_s()

    def oldest_s(self, step_s: int) -> int | None:
        """Start of the oldest stored block of one resolution; None: there is none."""
        found = self.one(f"SELECT min(key) FROM p{step_s} WHERE key >= 0")  # noqa: S608 - our own names
        return (found[0] >> NODE_BITS) * step_s * POINTS if found and found[0] is not None else None

    def nodes(self) -> set[str]:
        """Return the names of all known nodes."""
        self.learn()
        return {*self.names.values(), *self.live().nodes}

    def number(self, node: str) -> int | None:
        """Return a node's number; None: the node is not stored."""
        if node not in self._ids:
            self.learn()
        return self._ids.get(node)

    def learn(self) -> None:
        """Load new nodes and texts."""
        most = max(self.names, default=0)
        for name, number in numbers_of(self.all("SELECT name, id FROM node WHERE id > ?", most)).items():
            self._ids[name], self.names[number] = number, name
        self.texts += texts_of(self.all("SELECT id, text FROM text WHERE id >= ?", len(self.texts)), len(self.texts))

    def unstored_blocks(self, node: str) -> Iterator[tuple[int, Block]]:
        """Yield a node's minutes that are not stored yet, with their starts."""
        live = self.live()
        for begin_s in range(max(self.stored_s(), live.begin_s) // POINTS * POINTS, live.second_s, POINTS):
            if (block := live.blocks(begin_s).get(node)) is not None:
                yield begin_s, block

    def entries(self, topic: str, from_ms: int, to_ms: int) -> list[Record]:
        """Return the individually kept records of a topic in a span."""
        asked = "SELECT record FROM entry WHERE topic = ? AND at_ms >= ? AND at_ms <= ? ORDER BY at_ms"
        found = list(readable(record_of, self.all(asked, topic, from_ms, to_ms)))
        live = (one.record for one in self.live().unstored())
        return found + [one for one in live if one.topic == topic and from_ms <= one.timestamp_ms <= to_ms]


def some(keys: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Yield keys in chunks: a query takes a limited number."""
    for begin in range(0, len(keys), most):
        yield keys[begin : begin + most]


def record_of(row: tuple[bytes]) -> Record:
    """Decode an individually stored record."""
    return msgspec.msgpack.decode(row[0], type=Record)


def placed(record: Record) -> tuple[str, int, int]:
    """Return topic, partition and offset."""
    return record.topic, record.partition, record.offset


_IN_FORCE = """
FROM object JOIN version ON version.object = object.id AND version.at_ms = (
  SELECT max(at_ms) FROM version WHERE object = object.id AND at_ms <= ?1)
WHERE object.topic = ?2 AND (version.until_ms IS NULL OR version.until_ms > ?1)
"""


class Objects:
    """Objects of compacted topics (Jobs, queue and credit) at a moment."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def jobs(self, at_ms: int) -> Mapping[bytes, JobRow]:
        """Return all Jobs, by key."""
        if (latest := self._latest(at_ms)) is not None:
            return latest.rows.copy()
        found: dict[bytes, bytes] = dict(self._stored("row", at_ms, JOB_STATUS))
        for one in self._unstored(at_ms, JOB_STATUS):
            found.pop(one.key, None)
            if one.row is not None:
                found[one.key] = one.row
        return dict(readable(lambda row: (row[0], msgspec.msgpack.decode(row[1], type=JobRow)), found.items()))

    def held(self, at_ms: int, *topics: Topic) -> Held:
        """Return all objects of some topics, in the order of their records."""
        if (latest := self._latest(at_ms)) is not None:
            return latest.of(*topics)
        found: dict[tuple[str, bytes], Record] = {}
        for topic in topics:
            stored = readable(_version_of, self._stored("record", at_ms, topic))
            found |= {(topic.name, key): record for key, record in stored}
            for one in self._unstored(at_ms, topic):
                found.pop((topic.name, one.key), None)
                if one.record is not None:
                    found[topic.name, one.key] = one.record
        return Held(sorted(found.values(), key=placed))

    def one(self, at_ms: int, topic: Topic, key: bytes) -> Record | None:
        """Return one object; None: it did not exist."""
        if (latest := self._latest(at_ms)) is not None:
            return latest.one(topic, key)
        if unstored := [one for one in self._unstored(at_ms, topic) if one.key == key]:
            return unstored[-1].record
        asked = f"SELECT object.key, record {_IN_FORCE} AND object.key = ?3"
        return next((one for _, one in readable(_version_of, self._reading.all(asked, at_ms, topic.name, key))), None)

    def _latest(self, at_ms: int) -> Latest | None:
        """Return the current objects, for the newest or a later moment."""
        live = self._reading.live()
        return live.latest if 0 < live.second_s <= at_ms // 1_000 + 1 else None

    def _stored(self, what: str, at_ms: int, topic: Topic) -> list[tuple[Any, ...]]:
        return self._reading.all(f"SELECT object.key, version.{what} {_IN_FORCE}", at_ms, topic.name)

    def _unstored(self, at_ms: int, topic: Topic) -> list[Version]:
        unstored = self._reading.live().unstored_versions()
        return [one for one in unstored if one.topic == topic.name and one.at_ms <= at_ms]


def _version_of(row: tuple[bytes, bytes]) -> tuple[bytes, Record]:
    return row[0], msgspec.msgpack.decode(zlib.decompress(row[1]), type=Record)


DAY_MS = 24 * 3_600_000
LATELY_MS = 120_000
"""The newest pod lists are used for moments within this time."""
_Named = PodName | PodPlacement | MissedPod | Victim


class Pods:
    """Reads pods from the file and the current minute."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def events(self, pod: str, from_ms: int, to_ms: int) -> Sequence[PodEvent]:
        """Return a pod's events, oldest first. ``pod``: NAMESPACE/NAME, NAMESPACE, or a uid."""
        asked = (
            "SELECT DISTINCT record FROM entry JOIN pod ON pod.entry = entry.id "
            "WHERE (pod.name = ? OR pod.name GLOB ?) AND pod.at_ms >= ? AND pod.at_ms < ? ORDER BY pod.at_ms"
        )
        known = list(readable(record_of, self._reading.all(asked, pod, f"{_globbed(pod)}/*", from_ms, to_ms)))
        live = [one.record for one in self._reading.live().unstored() if any(is_named(name, pod) for name in one.names)]
        known += [one for one in live if from_ms <= one.timestamp_ms < to_ms]
        return [event for record in known for event in events_of(record, pod)]

    def names(self, at_ms: int, namespace: str = "", most: int = 1_000) -> Sequence[str]:
        """Return NAMESPACE/NAME of pods with records within the day before a moment.

        With a namespace, only its pods. For recent moments also pods of the nodes' lists.
        """
        asked = "SELECT DISTINCT name FROM pod WHERE at_ms > ? AND at_ms <= ? AND name GLOB ? ORDER BY name LIMIT ?"
        wanted = f"{_globbed(namespace)}/*" if namespace else "*/*"
        kept = self._reading.all(asked, at_ms - DAY_MS, at_ms, wanted, most)
        found = {name for (name,) in sound(kept, str)} | {
            name for one in self._reading.live().unstored() for name in one.names if "/" in name
        }
        if namespace:
            if at_ms >= self._reading.live().second_s * 1_000 - LATELY_MS:
                found |= {name for name, _ in self._listed()}
            found = {name for name in found if is_named(name, namespace)}
        return sorted(found)[:most]

    def node_of(self, pod: str, at_ms: int) -> str:
        """Return the node of NAMESPACE/NAME by its last event, else by the newest pod lists; "": unknown."""
        events = self.events(pod, at_ms - DAY_MS, at_ms + 1)
        known = next((one.node for one in reversed(events) if one.node), "")
        return known or next((node for name, node in self._listed() if name == pod), "")

    def _listed(self) -> Iterator[tuple[str, str]]:
        """Yield NAMESPACE/NAME and node of each pod in the nodes' newest keyframes."""
        for node in list(self._reading.live().nodes.values()):
            if node.keyframe is not None:
                for one in node.keyframe.body.pods or ():
                    yield f"{one.namespace}/{one.name}", node.name


def _globbed(text: str) -> str:
    return "".join(f"[{one}]" if one in "*?[" else one for one in text)


def is_named(name: str, pod: str) -> bool:
    """Return whether the pod matches: ``pod`` is its NAMESPACE/NAME, uid or NAMESPACE."""
    return name == pod or name.startswith(f"{pod}/")


def events_of(record: Record, pod: str) -> Iterator[PodEvent]:
    """Yield events of matching pods in one record."""
    place = place_of(record)

    def event(body: Message, kind: str, named: _Named, text: str, *, uid: str = "", node: str = "") -> PodEvent:
        return PodEvent(at_ms=place.logged_ms, kind=kind, namespace=named.namespace, name=named.name, uid=uid,
                        node=node, text=text, place=place, body=body)  # fmt: skip

    with suppress(BadMessageError):
        if record.topic == OUTCOME.name:
            act = decode(record.value, NodeOutcome)
            text = ", ".join(one for one in (act.rule, act.reason, observed(act.terms)) if one)
            if act.pod is not None:
                yield event(act, what(act), act.pod, text, uid=uid_of(act.target), node=act.node)
        elif record.topic == PLACEMENT.name:
            placed = decode(record.value, PodPlacement)
            text = f"{placed.passed} of {placed.asked} nodes accept it"
            yield event(placed, "placed" if placed.passed else "refused", placed, text, uid=placed.pod_uid)
        elif record.topic == MISSED_POD.name:
            missed = decode(record.value, MissedPod)
            yield event(missed, "missed", missed, "created while the webhook was unavailable", uid=missed.pod_uid)
        elif record.topic == DESCHEDULING.name:
            victims = decode(record.value, DeschedulingPass).victims
            for one in (one for one in victims if is_named(f"{one.namespace}/{one.name}", pod)):
                yield event(one, "descheduled", one, observed(one.terms), node=one.node)
