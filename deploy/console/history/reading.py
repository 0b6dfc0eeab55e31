"""Reads the history: the file with a connection per thread, and the minutes that are not stored yet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from slacktide.agents.damage import DATABASE_ERRORS, is_damage
from slacktide.deploy.console.history.file import NODE_BITS, StoreError, connect, readable, texts_of
from slacktide.deploy.console.history.points import POINTS, Block
from slacktide.deploy.console.history.recorder import Recorder
from slacktide.streams.records import Record

_DO = "try again: the console renames a damaged file and recovers its readable rows"


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
            if is_damage(exc):
                self._report(str(exc))
            raise StoreError(
                f"{self.path}: cannot be read: {exc}; {_DO if is_damage(exc) else 'check the disk'}"
            ) from exc
        return found

    def one(self, asked: str, *given: object) -> tuple[Any, ...]:
        """Return the first row; empty: none."""
        rows = self.all(asked, *given)
        return rows[0] if rows else ()

    def stored_s(self) -> int:
        """End of the last stored minute, UTC epoch; 0: none."""
        found = self.one("SELECT value FROM meta WHERE name = 'newest_s'")
        return int(found[0]) if found else 0

    def newest_s(self) -> int:
        """End of the last recorded second, UTC epoch; 0: none."""
        live = self.live()
        return live.second_s if live.has_any else self.stored_s()

    def oldest_s(self, step_s: int) -> int | None:
        """Start of the oldest stored block of one resolution; None: there is none."""
        found = self.one(f"SELECT min(key) FROM p{step_s}")  # noqa: S608 - our own names
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
        for number, name in self.all("SELECT id, name FROM node WHERE id > ?", most):
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
