"""Keeps outcomes until Kafka acknowledges them, in SQLite. Intents are written before the act.

WAL mode without sync: a commit outlives the process, but need not outlive the machine, as cgroup limits do not either.
A sync would block the agent while the disk stalls.
"""

import logging
import os
import sqlite3
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from slacktide.agents.damage import DATABASE_ERRORS, is_damage
from slacktide.agents.node.reporter import Key, ends_or_stops, key_of
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
POSITION_MAX = 2**53
"""No agent gets this far. A higher one is damage, behind which there may be no next."""


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

    def store(
        self,
        acknowledged: int,
        unwritten: Collection[tuple[int, NodeOutcome]],
        intents_now: Collection[NodeOutcome],
        gap_now: NodeOutcome | None,
    ) -> bool:
        """Make the database as it shall be, in one transaction, with no outcome up to ``acknowledged``.

        Return whether that worked.
        """
        intents = [encode(one) for one in intents_now]
        gap = b"" if gap_now is None else encode(gap_now)
        more = acknowledged > self._acknowledged
        if not (more or unwritten or set(intents) != self._intents or gap != self._gap):
            return True
        if (db := self._opened()) is None:
            return False
        rows = [(position, encode(outcome)) for position, outcome in unwritten]
        gone_bytes = 0
        try:
            db.execute("BEGIN")
            if more:
                gone_bytes = self._bytes(db, acknowledged)
                db.execute("DELETE FROM outcome WHERE position <= ?", (acknowledged,))
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
        self._acknowledged = max(self._acknowledged, acknowledged)
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
                self._drop_damaged(db)
                self._intents = {body for (body,) in db.execute("SELECT body FROM intent")}
                self._gap = next((body for (body,) in db.execute("SELECT body FROM gap")), b"")
                self.bytes_used = self._bytes(db)
            except (OSError, *DATABASE_ERRORS) as exc:
                self._failed(exc)
        return self._db

    def _failed(self, exc: Exception) -> None:
        """Count it, and roll back. Only a full disk keeps the connection: to open it reads all rows."""
        self.failures += 1
        if self._db is not None and getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            with suppress(*DATABASE_ERRORS):
                self._db.rollback()
                return
        self.close()
        if is_damage(exc):
            self.torn += 1
            aside = f"{self._path}.damaged"
            log.warning("the spool is damaged, and was set aside", extra={"file": aside, "why": str(exc)})
            for name in ("spool.db", "spool.db-wal"):
                with suppress(OSError):
                    (self._folder / name).replace(self._folder / f"{name}.damaged")

    def _drop_damaged(self, db: sqlite3.Connection) -> None:
        """Delete outcomes at positions that none has."""
        damaged = "FROM outcome WHERE position < 1 OR position > ?"
        if lost := db.execute(f"SELECT count(*) {damaged}", (POSITION_MAX,)).fetchone()[0]:
            db.execute(f"DELETE {damaged}", (POSITION_MAX,))
            self.torn += lost

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


BYTES_MAX = 64 * 1024 * 1024
WINDOW = 256
"""The oldest waiting outcomes, kept in memory besides the disk."""
UNWRITTEN_MAX = 1_024
"""Outcomes kept in memory while the disk refuses writes."""


class MemorySpool:
    """A spool in memory, for simulated nodes."""

    def __init__(self) -> None:
        self._intents: dict[Key, NodeOutcome] = {}
        self._pending: deque[tuple[int, NodeOutcome]] = deque()
        self._position = 0

    def intend(self, outcome: NodeOutcome) -> None:
        """Note an act that is about to happen."""
        self._intents[key_of(outcome)] = outcome

    def conclude(self, outcome: NodeOutcome) -> None:
        """Keep an outcome until it is acknowledged."""
        self._intents.pop(key_of(outcome), None)
        self._position += 1
        self._pending.append((self._position, outcome))

    def interrupted(self) -> list[NodeOutcome]:
        """Return the intents without an outcome."""
        return list(self._intents.values())

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """Return the oldest outcomes not yet acknowledged, in order."""
        return list(islice(self._pending, limit))

    def acknowledge(self, position: int) -> None:
        """Forget all outcomes up to and including this position."""
        _drop(self._pending, position)


class DiskSpool:
    """A spool in a folder, which one process uses at a time. Outcomes are delivered at least once.

    A full spool merges new outcomes, except evictions, into one counted ``gap``. While the disk refuses writes, it
    keeps a bounded number in memory.
    """

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._database = SpoolDatabase(folder)
        kept = self._database.read()
        self._intents = {key_of(one): one for one in kept.intents}
        self._gap = kept.gap
        self._last, self._acknowledged = kept.last, kept.first - 1
        # Outcomes are in three places, oldest first: the window, the database after it, and those not yet on disk.
        self._window: deque[tuple[int, NodeOutcome]] = deque()
        self._unwritten: deque[tuple[int, NodeOutcome]] = deque()
        self._read_to = self._acknowledged

    @property
    def bytes_used(self) -> int:
        """Bytes of the outcomes on disk."""
        return self._database.bytes_used

    @property
    def waiting(self) -> int:
        """Unacknowledged outcomes; a gap counts as one."""
        return self._last - self._acknowledged + (self._gap is not None)

    @property
    def torn(self) -> int:
        """Databases and records that could not be read."""
        return self._database.torn

    @property
    def failures(self) -> int:
        """Failed reads and writes."""
        return self._database.failures

    def intend(self, outcome: NodeOutcome) -> None:
        """Note an act that is about to happen."""
        self._intents[key_of(outcome)] = outcome
        self._store()

    def conclude(self, outcome: NodeOutcome) -> None:
        """Keep an outcome until it is acknowledged."""
        full = self._database.bytes_used >= self._bytes_max or len(self._unwritten) >= UNWRITTEN_MAX
        if full and not (ends_or_stops(outcome) and outcome.result != "refused"):
            self._gap = msgspec.structs.replace(
                outcome,
                origin="agent",
                result="gap",
                reason="the spool was full",
                before=None,
                after=None,
                bound="",
                terms={},
                count=outcome.count + (self._gap.count if self._gap else 0),
            )
        else:
            self._close_gap()
            self._keep(outcome)
        self._intents.pop(key_of(outcome), None)
        self._store()

    def interrupted(self) -> list[NodeOutcome]:
        """Return the intents without an outcome."""
        return list(self._intents.values())

    def pending(self, limit: int) -> list[tuple[int, NodeOutcome]]:
        """Return the oldest outcomes not yet acknowledged, in order."""
        if self._acknowledged == self._last:
            self._close_gap()
        self._store()
        if len(self._window) < min(limit, WINDOW):
            # The next outcomes are on disk, then in memory: those not yet on disk must not overtake.
            stored = self._database.outcomes(self._read_to, WINDOW - len(self._window))
            if stored is not None or not self._unwritten or self._unwritten[0][0] <= self._read_to + 1:
                self._take(stored or ())
                self._take(self._unwritten)
        return list(islice(self._window, limit))

    def acknowledge(self, position: int) -> None:
        """Forget all outcomes up to and including this position."""
        position = min(position, self._read_to)
        if position > self._acknowledged:
            self._acknowledged = position
            _drop(self._window, position)
            _drop(self._unwritten, position)
            self._store()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _keep(self, outcome: NodeOutcome) -> None:
        self._last += 1
        if self._read_to == self._last - 1 and len(self._window) < WINDOW:
            self._window.append((self._last, outcome))
            self._read_to = self._last
        self._unwritten.append((self._last, outcome))

    def _store(self) -> None:
        """Bring the database to what memory holds. If that fails, the next call tries again."""
        if self._database.store(self._acknowledged, self._unwritten, self._intents.values(), self._gap):
            self._unwritten.clear()

    def _take(self, found: Iterable[tuple[int, NodeOutcome | None]]) -> None:
        for position, outcome in found:
            if len(self._window) >= WINDOW:
                return
            # A position above the last is damage: to go on from it would hide the outcomes behind it.
            if self._read_to < position <= self._last:
                self._read_to = position
                if outcome is not None:
                    self._window.append((position, outcome))

    def _close_gap(self) -> None:
        """Append the gap as an outcome. The next gap starts from zero."""
        gap, self._gap = self._gap, None
        if gap is not None:
            self._keep(gap)


def _drop(waiting: deque[tuple[int, NodeOutcome]], position: int) -> None:
    while waiting and waiting[0][0] <= position:
        waiting.popleft()
