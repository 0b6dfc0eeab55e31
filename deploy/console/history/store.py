"""One file of SQLite: minutes in, blocks, records and gaps out. docs/console-store.md has the figures behind it.

A minute and the offsets behind it are stored in one transaction, so a process that is killed continues where the file
ends. Coarser points are made of stored ones, so they lack nothing that the finer ones have.
"""

from __future__ import annotations

import logging
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import msgspec

from slacktide.deploy.console.history.points import POINTS, STEPS_S, Block, packed, rolled, whole
from slacktide.deploy.console.history.recorder import Minute
from slacktide.deploy.console.history.view import Gap
from slacktide.schemas.errors import SlacktideError
from slacktide.streams.records import Place, Record

log = logging.getLogger(__name__)

FORMAT = 1
"""Of the file. One of another format is set aside."""
HORIZON_S = {1: 24 * 3_600, 10: 3 * 24 * 3_600, 60: 7 * 24 * 3_600}
KEPT_S = 7 * 24 * 3_600
SIZE_BYTES_MAX = 4 << 30
SIZE_BYTES_MIN = 2 << 20
NODE_BITS = 20
PAGE_BYTES = 32_768
"""A page has several blocks, with little room left over."""
_PARTS = 8
"""In such parts of what there is the oldest goes where the file is full."""
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE node (id INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE text (id INTEGER PRIMARY KEY, text TEXT);
CREATE TABLE p1 (key INTEGER PRIMARY KEY, points BLOB, extremes BLOB);
CREATE TABLE p10 (key INTEGER PRIMARY KEY, points BLOB, extremes BLOB);
CREATE TABLE p60 (key INTEGER PRIMARY KEY, points BLOB, extremes BLOB);
CREATE TABLE kept (key INTEGER PRIMARY KEY, minute INTEGER, records BLOB);
CREATE INDEX kept_minute ON kept (minute);
CREATE TABLE entry (id INTEGER PRIMARY KEY, topic TEXT, partition INTEGER, offset INTEGER, at_ms INTEGER, node TEXT,
  record BLOB, UNIQUE (topic, partition, offset, at_ms));
CREATE INDEX entry_at ON entry (topic, at_ms);
CREATE INDEX entry_age ON entry (at_ms);
CREATE TABLE pod (name TEXT, at_ms INTEGER, entry INTEGER, PRIMARY KEY (name, at_ms, entry)) WITHOUT ROWID;
CREATE INDEX pod_age ON pod (at_ms);
CREATE TABLE rate (minute INTEGER, topic TEXT, records INTEGER, PRIMARY KEY (minute, topic)) WITHOUT ROWID;
CREATE TABLE cursor (topic TEXT, partition INTEGER, next INTEGER, before INTEGER, rewind INTEGER,
  PRIMARY KEY (topic, partition)) WITHOUT ROWID;
CREATE TABLE gap (from_ms INTEGER, to_ms INTEGER, what TEXT, reason TEXT, PRIMARY KEY (from_ms, what)) WITHOUT ROWID;
"""
_SALVAGED = ("meta", "node", "text", "p60", "p10", "kept", "entry", "pod", "rate", "gap", "p1")


class StoreError(SlacktideError):
    """The file cannot be used; the message says why, and what to do."""


class _Kept(msgspec.Struct, array_like=True):
    """Records of one node and minute, and by topic the minute of the last that was kept before."""

    before: dict[str, int]
    records: list[Record]


def block_key(start_s: int, step_s: int, node: int) -> int:
    """Where a block lies: by time, then by node."""
    return start_s // (step_s * POINTS) << NODE_BITS | node


def blocks_asked(step_s: int, keys: Sequence[int]) -> str:
    """The question for these blocks of one resolution."""
    return f"SELECT * FROM p{step_s} WHERE key IN ({','.join('?' * len(keys))})"  # noqa: S608 - our own names


def blocks_of(rows: Iterable[tuple[int, bytes, bytes | None]]) -> dict[int, Block]:
    """Its answer, unpacked, by key."""
    return {key: whole(points, extremes) for key, points, extremes in rows}


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open the file, as one of many readers or as its writer."""
    mode = "ro" if read_only else "rwc"
    db = sqlite3.connect(f"file:{path}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA busy_timeout=5000")
    db.execute("PRAGMA cache_size=-4096")
    return db


class Store:
    """The writer's side. One process writes at a time.

    Args:
        path: the file; made, with its folder, where it is not there.
        size_bytes_max: of the file; the oldest goes first.

    Raises:
        StoreError: it cannot be opened, nor set aside.

    """

    def __init__(self, path: Path, *, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self.path = path
        self.size_bytes_max = max(size_bytes_max, SIZE_BYTES_MIN)
        self.lost = ""
        """What was lost at opening; "": nothing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = self._opened()
        except (sqlite3.Error, OSError) as exc:
            raise StoreError(f"{path}: cannot be opened: {exc}; does the folder exist and is it writable?") from exc
        self._nodes: dict[str, int] = dict(self._db.execute("SELECT name, id FROM node"))

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def _opened(self) -> sqlite3.Connection:
        try:
            db = connect(self.path)
            try:
                self._prepare(db)
            except BaseException:
                db.close()
                raise
        except sqlite3.OperationalError:  # locked, full or not permitted: the file itself may be good
            raise
        except sqlite3.DatabaseError as exc:
            return self._salvaged(str(exc))
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        if not db.execute("PRAGMA page_count").fetchone()[0]:
            db.execute(f"PRAGMA page_size={PAGE_BYTES}")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA journal_size_limit=16777216")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if not version:
            db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={FORMAT}; COMMIT;")
        elif version != FORMAT:
            raise sqlite3.DatabaseError(f"format {version}, this release writes {FORMAT}")
        page, pages = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count"))
        db.execute(f"PRAGMA max_page_count={max(self.size_bytes_max // page, pages)}")
        if self.path.stat().st_size < page * pages and not self._wal_holds(page * pages):
            raise sqlite3.DatabaseError("the file ends before its last page")
        for table in _SALVAGED:  # the ends of each tree, which a torn file lacks
            db.execute(f"SELECT * FROM {table} ORDER BY 1 DESC LIMIT 1").fetchall()  # noqa: S608 - our own names

    def _wal_holds(self, _size_bytes: int) -> bool:
        wal = self.path.with_name(self.path.name + "-wal")
        return wal.exists() and wal.stat().st_size > 0

    def _salvaged(self, why: str) -> sqlite3.Connection:
        """Set a file aside that cannot be used, and take over what can be read of it."""
        aside = self.path.with_name(f"{self.path.name}.aside")
        for end in ("", "-wal", "-shm"):
            old, new = (path.with_name(path.name + end) for path in (self.path, aside))
            new.unlink(missing_ok=True)
            if old.exists():
                old.replace(new)
        db = connect(self.path)
        self._prepare(db)
        rows = 0
        with suppress(sqlite3.Error):
            old_db = connect(aside)
            try:
                if old_db.execute("PRAGMA user_version").fetchone()[0] == FORMAT:
                    rows = sum(_copied(old_db, db, table) for table in _SALVAGED)
            finally:
                old_db.close()
        self.lost = f"{self.path.name} could not be read ({why}); {rows:,} rows were taken over from {aside.name}"
        log.warning("the history was set aside", extra={"why": self.lost})
        newest = db.execute("SELECT max(key) FROM p1").fetchone()[0]
        newest_s = 0 if newest is None else ((newest >> NODE_BITS) + 1) * POINTS
        db.execute("INSERT OR REPLACE INTO meta VALUES ('newest_s', ?)", (newest_s,))
        return db

    @property
    def newest_s(self) -> int:
        """End of the last stored minute, UTC epoch; 0: nothing is stored."""
        found = self._db.execute("SELECT value FROM meta WHERE name = 'newest_s'").fetchone()
        return int(found[0]) if found else 0

    def texts(self) -> list[str]:
        """Stored texts in the order of their numbers."""
        return [text for (text,) in self._db.execute("SELECT text FROM text ORDER BY id")]

    def cursors(self) -> dict[Place, tuple[int, int]]:
        """By partition the next offset, and one about two minutes before it."""
        rows = self._db.execute("SELECT topic, partition, next, rewind FROM cursor")
        return {Place(topic, number): (following, rewind) for topic, number, following, rewind in rows}

    def add(self, minute: Minute) -> None:
        """Store a minute with the offsets behind it, and drop what is too old or too much.

        Raises:
            StoreError: it cannot be written, even after the oldest has gone. Nothing of it is stored.

        """
        for attempt in range(3):
            try:
                with self._transaction() as db:
                    self._write(db, minute)
                break
            except sqlite3.Error as exc:
                if attempt == 2:
                    raise StoreError(f"{self.path}: a minute could not be stored: {exc}; make room") from exc
                self._mend(exc, minute.start_s)
        self._expire(minute.start_s)

    def _mend(self, error: sqlite3.Error, at_s: int) -> None:
        """Make room in a full file; set one aside that cannot be read."""
        if isinstance(error, sqlite3.OperationalError):
            self._make_room()
            return
        self._db.close()
        self._db = self._salvaged(str(error))
        self._nodes = dict(self._db.execute("SELECT name, id FROM node"))
        gap = Gap(from_ms=0, to_ms=at_s * 1_000, what="all", reason=self.lost)
        self.lost = ""
        self.gap(gap)

    def gap(self, gap: Gap) -> None:
        """Remember that something is missing; a longer gap of the same begin replaces it."""
        with suppress(sqlite3.Error), self._transaction() as db:  # where the file is full it is told again
            row = (gap.from_ms, gap.to_ms, gap.what, gap.reason)
            db.execute("INSERT OR REPLACE INTO gap VALUES (?, ?, ?, ?)", row)

    def roll(self, most: int = 50) -> bool:
        """Make coarser points of finer ones that are complete, of so many nodes; whether there is more to do."""
        for step_s, coarse_s in pairwise(STEPS_S):
            span_s = coarse_s * POINTS
            done = self._meta(f"rolled_{coarse_s}") or self._oldest_block_s(step_s) // span_s * span_s
            if done and done + span_s <= self.newest_s // span_s * span_s:
                return self._roll(step_s, coarse_s, done, most)
        return False

    def _roll(self, step_s: int, coarse_s: int, start_s: int, most: int) -> bool:
        """One coarse block of some nodes; what was done is remembered, so that it is done once."""
        fine, span_s = step_s * POINTS, coarse_s * POINTS
        after = self._meta("rolled_node")
        ids = [one for one in sorted(self._nodes.values()) if one > after][:most]
        made = []
        for node in ids:
            keys = [block_key(begin, step_s, node) for begin in range(start_s, start_s + span_s, fine)]
            found = blocks_of(self._db.execute(blocks_asked(step_s, keys), keys))
            if found:
                made.append(
                    (block_key(start_s, coarse_s, node), *packed(rolled([*map(found.get, keys)], step_s, coarse_s)))
                )
        try:
            with self._transaction() as db:
                db.executemany(f"INSERT OR REPLACE INTO p{coarse_s} VALUES (?, ?, ?)", made)  # noqa: S608
                self._set(db, "rolled_node", ids[-1] if len(ids) == most else 0)
                if len(ids) < most:
                    self._set(db, f"rolled_{coarse_s}", start_s + span_s)
        except sqlite3.OperationalError:  # the file is full
            return self._make_room()
        return True

    def _write(self, db: sqlite3.Connection, minute: Minute) -> None:
        first = db.execute("SELECT count(*) FROM text").fetchone()[0]
        db.executemany("INSERT INTO text VALUES (?, ?)", enumerate(minute.texts, first))
        for name in {*minute.blocks, *minute.kept} - self._nodes.keys():
            self._nodes[name] = db.execute("INSERT INTO node (name) VALUES (?)", (name,)).lastrowid or 0
        db.executemany(
            "INSERT OR REPLACE INTO p1 VALUES (?, ?, ?)",
            ((block_key(minute.start_s, 1, self._nodes[name]), *packed(one)) for name, one in minute.blocks.items()),
        )
        for name, records in minute.kept.items():
            self._keep(db, self._nodes[name], minute.start_s // POINTS, records)
        for entry in minute.entries:
            one = entry.record
            row = (one.topic, one.partition, one.offset, one.timestamp_ms, entry.node, msgspec.msgpack.encode(one))
            made = db.execute("INSERT OR IGNORE INTO entry VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)
            if made.rowcount:
                pods = [(name, one.timestamp_ms, made.lastrowid) for name in entry.names]
                db.executemany("INSERT OR IGNORE INTO pod VALUES (?, ?, ?)", pods)
        rates = [(minute.start_s // POINTS, topic, records) for topic, records in minute.rates.items()]
        db.executemany("INSERT OR REPLACE INTO rate VALUES (?, ?, ?)", rates)
        db.executemany(
            "INSERT INTO cursor VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT DO UPDATE SET rewind = min(before, ?3), "
            "before = min(next, ?3), next = ?3",
            (
                (place.topic, place.partition, offset, minute.firsts.get(place, offset))
                for place, offset in minute.offsets.items()
            ),
        )
        self._set(db, "newest_s", minute.start_s + POINTS)

    def _keep(self, db: sqlite3.Connection, node: int, minute: int, records: Sequence[Record]) -> None:
        key = node << 32 | minute
        last = db.execute(
            "SELECT key, records FROM kept WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1", (node << 32, key)
        ).fetchone()
        before: dict[str, int] = {}
        if last is not None:
            earlier = unpack_kept(last[1])
            if last[0] == key:
                before, records = earlier.before, [*earlier.records, *records]
            else:
                before = earlier.before | {one.topic: last[0] & 0xFFFFFFFF for one in earlier.records}
        slim = [msgspec.structs.replace(one, headers=_traced(one)) for one in records]
        blob = zlib.compress(msgspec.msgpack.encode(_Kept(before, slim)), 6)
        db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (key, minute, blob))

    def _expire(self, now_s: int) -> None:
        """Drop what is beyond its horizon, then the oldest while the file is too large."""
        with suppress(sqlite3.OperationalError):
            for what, span_s in _HORIZONS.items():
                self._drop(what, now_s - span_s)
            while self.size_bytes() > 0.9 * self.size_bytes_max and self._make_room():
                pass

    def _make_room(self) -> bool:
        """Drop a part of what is oldest, measured by its horizon; whether there was any."""
        newest_s = self.newest_s
        shares = {what: (newest_s - self._oldest_s(what)) / span for what, span in _HORIZONS.items()}
        what, share = max(shares.items(), key=lambda one: one[1])
        if share <= 0:
            return False
        with suppress(sqlite3.OperationalError):
            oldest_s = self._oldest_s(what)
            least_s = int(what[1:]) * POINTS if what in _BLOCKS else POINTS
            self._drop(what, oldest_s + max(least_s, (newest_s - oldest_s) // _PARTS))
        return True

    def _drop(self, what: str, before_s: int) -> None:
        with self._transaction() as db:
            if what == "kept":
                db.execute("DELETE FROM kept WHERE minute < ?", (before_s // POINTS,))
            elif what == "entry":
                db.execute("DELETE FROM entry WHERE at_ms < ? AND topic NOT LIKE '%.policy.%'", (before_s * 1_000,))
                db.execute("DELETE FROM pod WHERE at_ms < ?", (before_s * 1_000,))
                db.execute("DELETE FROM rate WHERE minute < ?", (before_s // POINTS,))
                db.execute("DELETE FROM gap WHERE to_ms < ?", (before_s * 1_000,))
            else:
                step_s = int(what[1:])
                db.execute(f"DELETE FROM {what} WHERE key < ?", (block_key(before_s, step_s, 0),))  # noqa: S608

    def _oldest_s(self, what: str) -> int:
        if what == "kept":
            found = self._db.execute("SELECT min(minute) FROM kept").fetchone()[0]
            return self.newest_s if found is None else int(found) * POINTS
        if what == "entry":
            asked = "SELECT min(at_ms) FROM entry WHERE topic NOT LIKE '%.policy.%'"
            found = self._db.execute(asked).fetchone()[0]
            return self.newest_s if found is None else int(found) // 1_000
        return self._oldest_block_s(int(what[1:])) or self.newest_s

    def _oldest_block_s(self, step_s: int) -> int:
        found = self._db.execute(f"SELECT min(key) FROM p{step_s}").fetchone()[0]  # noqa: S608
        return 0 if found is None else (int(found) >> NODE_BITS) * step_s * POINTS

    def size_bytes(self) -> int:
        """Of the pages in use."""
        page, pages, free = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
        return int(page * (pages - free))

    def _meta(self, name: str) -> int:
        found = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return int(found[0]) if found else 0

    def _set(self, db: sqlite3.Connection, name: str, value: int) -> None:
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise


_BLOCKS = {f"p{step_s}": span_s for step_s, span_s in HORIZON_S.items()}
_HORIZONS = {**_BLOCKS, "kept": KEPT_S, "entry": KEPT_S}


def unpack_kept(blob: bytes) -> _Kept:
    """Records of one node and minute."""
    return msgspec.msgpack.decode(zlib.decompress(blob), type=_Kept)


def _traced(record: Record) -> Iterable[tuple[str, bytes]]:
    return tuple((name, value) for name, value in record.headers if name == "traceparent")


def _copied(old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> int:
    """Copy what can be read of a table, from both ends towards what cannot."""
    width = len(new.execute(f"PRAGMA table_info({table})").fetchall())
    put = f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * width)})"  # noqa: S608 - our own names
    count = 0
    new.execute("BEGIN")
    for order in ("ASC", "DESC"):
        try:
            for row in old.execute(f"SELECT * FROM {table} ORDER BY 1 {order}"):  # noqa: S608
                count += new.execute(put, row).rowcount
        except sqlite3.DatabaseError:
            continue
        break
    new.execute("COMMIT")
    return count
