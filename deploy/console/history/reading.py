"""Reads the store's file: a connection per thread, and names by number."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from slacktide.deploy.console.history.file import StoreError, connect
from slacktide.streams.records import Record

_DO = "restart the console: it renames a damaged file and recovers its readable rows"


class Reading:
    """Reads the file, which may be missing or be replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts: list[str] = []
        """The loaded texts by number."""
        self.names: dict[int, str] = {}
        """Node names by number, as far as loaded."""
        self._ids: dict[str, int] = {}
        self._of_thread = threading.local()

    def all(self, asked: str, *given: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query.

        Raises:
            StoreError: the file cannot be read.
        """
        if not self.path.exists():
            return []
        db, file = getattr(self._of_thread, "db", (None, 0))
        try:
            if db is None or file != self.path.stat().st_ino:  # it was replaced
                db = connect(self.path, read_only=True)
                self._of_thread.db = db, self.path.stat().st_ino
            found: list[tuple[Any, ...]] = db.execute(asked, given).fetchall()
        except sqlite3.DatabaseError as exc:
            raise StoreError(f"{self.path}: cannot be read: {exc}; {_DO}") from exc
        return found

    def one(self, asked: str, *given: object) -> tuple[Any, ...]:
        """Return the first row; empty: none."""
        rows = self.all(asked, *given)
        return rows[0] if rows else ()

    def stored_s(self) -> int:
        """End of the last stored minute, UTC epoch; 0: none."""
        found = self.one("SELECT value FROM meta WHERE name = 'newest_s'")
        return int(found[0]) if found else 0

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
        more = self.all("SELECT text FROM text WHERE id >= ? ORDER BY id", len(self.texts))
        self.texts += [text for (text,) in more]


def some(keys: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Yield keys in chunks: a query takes a limited number."""
    for begin in range(0, len(keys), most):
        yield keys[begin : begin + most]


def record_of(blob: bytes) -> Record:
    """Decode an individually stored record."""
    return msgspec.msgpack.decode(blob, type=Record)


def placed(record: Record) -> tuple[str, int, int]:
    """Return topic, partition and offset."""
    return record.topic, record.partition, record.offset
