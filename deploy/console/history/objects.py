"""Jobs, queue and credit at a moment: from the file, from minutes not stored yet, or current."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slacktide.deploy.console.history import versions
from slacktide.deploy.console.history.job_row import JobRow, unpack_row
from slacktide.deploy.console.history.latest import Held, Latest
from slacktide.deploy.console.history.minute import Version
from slacktide.deploy.console.history.reading import Reading, placed
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.schemas.topics import JOB_STATUS, Topic
from slacktide.streams.records import Record


class Objects:
    """Objects of compacted topics."""

    def __init__(self, reading: Reading, recorder: Callable[[], Recorder | None]) -> None:
        self._reading = reading
        self._recorder = recorder

    def jobs(self, at_ms: int) -> Mapping[bytes, JobRow]:
        """Return all Jobs, by key."""
        if (latest := self._latest(at_ms)) is not None:
            return latest.rows.copy()
        found = dict(versions.rows_at(self._reading, at_ms))
        for one in self._unstored(at_ms, JOB_STATUS):
            found.pop(one.key, None)
            if one.row is not None:
                found[one.key] = unpack_row(one.row)
        return found

    def held(self, at_ms: int, *topics: Topic) -> Held:
        """Return all objects of some topics, in the order of their records."""
        if (latest := self._latest(at_ms)) is not None:
            return latest.of(*topics)
        found: dict[tuple[str, bytes], Record] = {}
        for topic in topics:
            found |= {(topic.name, key): one for key, one in versions.records_at(self._reading, at_ms, topic).items()}
            for one in self._unstored(at_ms, topic):
                found.pop((topic.name, one.key), None)
                if one.record is not None:
                    found[topic.name, one.key] = one.record
        return Held(sorted(found.values(), key=placed))

    def one(self, at_ms: int, topic: Topic, key: bytes) -> Record | None:
        """Return one object; None: it did not exist."""
        if (latest := self._latest(at_ms)) is not None:
            return latest.one(topic, key)
        unstored = [one for one in self._unstored(at_ms, topic) if one.key == key]
        return unstored[-1].record if unstored else versions.record_at(self._reading, at_ms, topic, key)

    def _latest(self, at_ms: int) -> Latest | None:
        """Return the current objects, for the newest or a later moment."""
        live = self._recorder()
        return live.latest if live is not None and at_ms // 1_000 >= live.second_s - 1 else None

    def _unstored(self, at_ms: int, topic: Topic) -> list[Version]:
        live = self._recorder()
        unstored = [] if live is None else live.unstored_versions()
        return [one for one in unstored if one.topic == topic.name and one.at_ms <= at_ms]
