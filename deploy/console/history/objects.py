"""Jobs, queue and credit at a moment: from the file, from minutes not stored yet, or current."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from slacktide.deploy.console.history.file import readable
from slacktide.deploy.console.history.latest import Held, JobRow, Latest
from slacktide.deploy.console.history.minute import Version
from slacktide.deploy.console.history.reading import Reading, placed
from slacktide.schemas.topics import JOB_STATUS, Topic
from slacktide.streams.records import Record

_IN_FORCE = """
FROM object JOIN version ON version.object = object.id AND version.at_ms = (
  SELECT max(at_ms) FROM version WHERE object = object.id AND at_ms <= ?1)
WHERE object.topic = ?2 AND (version.until_ms IS NULL OR version.until_ms > ?1)
"""


class Objects:
    """Objects of compacted topics."""

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
        return dict(readable(_row, found.items()))

    def held(self, at_ms: int, *topics: Topic) -> Held:
        """Return all objects of some topics, in the order of their records."""
        if (latest := self._latest(at_ms)) is not None:
            return latest.of(*topics)
        found: dict[tuple[str, bytes], Record] = {}
        for topic in topics:
            stored = readable(_record, self._stored("record", at_ms, topic))
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
        return next((one for _, one in readable(_record, self._reading.all(asked, at_ms, topic.name, key))), None)

    def _latest(self, at_ms: int) -> Latest | None:
        """Return the current objects, for the newest or a later moment."""
        live = self._reading.live()
        return live.latest if 0 < live.second_s <= at_ms // 1_000 + 1 else None

    def _stored(self, what: str, at_ms: int, topic: Topic) -> list[tuple[Any, ...]]:
        return self._reading.all(f"SELECT object.key, version.{what} {_IN_FORCE}", at_ms, topic.name)

    def _unstored(self, at_ms: int, topic: Topic) -> list[Version]:
        unstored = self._reading.live().unstored_versions()
        return [one for one in unstored if one.topic == topic.name and one.at_ms <= at_ms]


def _record(row: tuple[bytes, bytes]) -> tuple[bytes, Record]:
    return row[0], msgspec.msgpack.decode(zlib.decompress(row[1]), type=Record)


def _row(row: tuple[bytes, bytes]) -> tuple[bytes, JobRow]:
    return row[0], msgspec.msgpack.decode(row[1], type=JobRow)
