"""The spool's SQLite database: outcomes, open intents, and the gap.

WAL mode without sync: a commit outlives the process, but need not outlive the machine, as cgroup limits do not either.
A sync would block the agent while the disk stalls.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from slacktide.agents.damage import DATABASE_ERRORS, is_damage
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.outcome import NodeOutcome

log = logging.getLogger(__name__)


SETTINGS = ("synchronous = OFF", "locking_mode = EXCLUSIVE", "journal_mode = WAL", "wal_autocheckpoint = 100")
TABLES = (
    "CREATE TABLE IF NOT EXISTS outcome (position INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS intent (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS gap (number INTEGER PRIMARY KEY CHECK (number = 1), body BLOB NOT NULL)",
)
POSITION_MAX = 2**63 - 1


class Change(NamedTuple):
    """What the database shall hold."""

    acknowledged: int
    """Outcomes up to this position are deleted."""
    unwritten: Collection[tuple[int, NodeOutcome]]
    intents: Collection[NodeOutcome]
    gap: NodeOutcome | None


@dataclass(slots=True)
class Kept:
    """What an earlier run left. Positions begin at 1; without outcomes ``first`` is behind ``last``."""

    intents: list[NodeOutcome] = field(default_factory=list)
    gap: NodeOutcome | None = None
    first: int = 1
    last: int = 0


def connect(path: Path) -> sqlite3.Connection:
    """Open or create the database, readable by its owner alone.

    Raises:
        OSError: it cannot be created.
        DATABASE_ERRORS: it cannot be used.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    db = sqlite3.connect(path, timeout=0, isolation_level=None)
    db.text_factory = bytes  # a damaged row may be text that is not UTF-8
    try:
        for statement in (*(f"PRAGMA {setting}" for setting in SETTINGS), *TABLES):
            db.execute(statement)
    except DATABASE_ERRORS:
        db.close()
        raise
    return db


class SpoolDatabase:
    """Never raises: failures are counted. A damaged database is set aside, and a new one begun."""

    def __init__(self, folder: Path) -> None:
        self.bytes_used = 0
        self.failures = 0
        self.torn = 0
        self._folder, self._path = folder, folder / "spool.db"
        self._db: sqlite3.Connection | None = None
        self._intents: set[bytes] = set()
        self._gap = b""
        self._acknowledged = 0

    def read(self) -> Kept:
        """Read what an earlier run left, except for the outcomes."""
        kept = Kept()
        if (db := self._opened()) is None:
            return kept
        try:
            bodies = db.execute("SELECT body FROM intent ORDER BY number").fetchall()
            kept.intents = [one for (body,) in bodies if (one := self._decoded(body)) is not None]
            kept.gap = self._decoded(self._gap) if self._gap else None
            first, last = db.execute("SELECT min(position), max(position) FROM outcome").fetchone()
            kept.first, kept.last = first or 1, last or 0
        except DATABASE_ERRORS as exc:
            self._failed(exc)
        return kept

    def store(self, change: Change) -> bool:
        """Make the database as it shall be, in one transaction; whether that worked."""
        intents = [encode(one) for one in change.intents]
        gap = b"" if change.gap is None else encode(change.gap)
        acknowledged = change.acknowledged > self._acknowledged
        if not (acknowledged or change.unwritten or set(intents) != self._intents or gap != self._gap):
            return True
        if (db := self._opened()) is None:
            return False
        rows = [(position, encode(outcome)) for position, outcome in change.unwritten]
        gone_bytes = 0
        try:
            db.execute("BEGIN")
            if acknowledged:
                gone_bytes = self._bytes(db, change.acknowledged)
                db.execute("DELETE FROM outcome WHERE position <= ?", (change.acknowledged,))
            db.executemany("INSERT OR REPLACE INTO outcome VALUES (?, ?)", rows)
            db.executemany("DELETE FROM intent WHERE body = ?", [(body,) for body in self._intents.difference(intents)])
            # In their order, for it is the order of the acts.
            new = [(body,) for body in intents if body not in self._intents]
            db.executemany("INSERT INTO intent (body) VALUES (?)", new)
            if gap != self._gap:
                db.execute("DELETE FROM gap")
                db.executemany("INSERT INTO gap VALUES (1, ?)", [(gap,)] if gap else [])
            db.execute("COMMIT")
        except DATABASE_ERRORS as exc:
            self._failed(exc)
            return False
        self.bytes_used += sum(len(body) for _, body in rows) - gone_bytes
        self._intents, self._gap = set(intents), gap
        self._acknowledged = max(self._acknowledged, change.acknowledged)
        return True

    def outcomes(self, after: int, limit: int) -> list[tuple[int, NodeOutcome | None]] | None:
        """Return so many stored outcomes behind a position, in order; None: the database cannot be read.

        A row that cannot be decoded has no outcome, and does not count.
        """
        found: list[tuple[int, NodeOutcome | None]] = []
        question = "SELECT position, body FROM outcome WHERE position > ? ORDER BY position LIMIT ?"
        while limit > 0:
            try:
                db = self._opened()
                rows = None if db is None else db.execute(question, (after, limit)).fetchall()
            except DATABASE_ERRORS as exc:
                self._failed(exc)
                rows = None
            if rows is None:
                return None
            its = [(position, self._decoded(body)) for position, body in rows]
            found += its
            if len(rows) < limit:
                break
            after, limit = rows[-1][0], sum(outcome is None for _, outcome in its)
        return found

    def close(self) -> None:
        """Close it."""
        db, self._db = self._db, None
        if db is not None:
            with suppress(*DATABASE_ERRORS):
                db.close()

    def _opened(self) -> sqlite3.Connection | None:
        if self._db is None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._db = db = connect(self._path)
                self._intents = {body for (body,) in db.execute("SELECT body FROM intent")}
                self._gap = next((body for (body,) in db.execute("SELECT body FROM gap")), b"")
                self.bytes_used = self._bytes(db)
            except (OSError, *DATABASE_ERRORS) as exc:
                self._failed(exc)
        return self._db

    def _failed(self, exc: Exception) -> None:
        """Count it, and roll back. Only a full disk keeps the connection: to open it reads all rows."""
        self.failures += 1
        if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL and self._rolled_back():
            return
        self.close()
        if is_damage(exc):
            self.torn += 1
            aside = f"{self._path}.damaged"
            log.warning("the spool is damaged, and was set aside", extra={"file": aside, "why": str(exc)})
            for name in ("spool.db", "spool.db-wal"):
                with suppress(OSError):
                    (self._folder / name).replace(self._folder / f"{name}.damaged")

    def _rolled_back(self) -> bool:
        try:
            if self._db is not None:
                self._db.rollback()
        except DATABASE_ERRORS:
            return False
        return self._db is not None

    def _bytes(self, db: sqlite3.Connection, until: int = POSITION_MAX) -> int:
        question = "SELECT coalesce(sum(length(body)), 0) FROM outcome WHERE position <= ?"
        found: int = db.execute(question, (until,)).fetchone()[0]
        return found

    def _decoded(self, body: object) -> NodeOutcome | None:
        """Decode a row; None: it is damaged. A flipped bit may also change its type."""
        with suppress(BadMessageError):
            if isinstance(body, bytes):
                found: NodeOutcome = decode(body, NodeOutcome)
                return found
        self.torn += 1
        return None
