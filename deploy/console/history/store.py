"""The SQLite store: writes minutes, blocks, records and gaps, and deletes expired data. Sizes: docs/console-store.md.

A minute and its offsets are stored in one transaction, so that a killed process continues at the file's end. Coarser
points are computed from stored points, so they are equally complete.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

from slacktide.agents.damage import DATABASE_ERRORS, is_damage
from slacktide.deploy.console.history.file import (
    NODE_BITS,
    StoreError,
    block_key,
    blocks_asked,
    blocks_of,
    numbers_of,
    opened,
    readable,
    salvaged,
    sound,
    texts_of,
    transaction,
)
from slacktide.deploy.console.history.minute import Minute, Version, pack_kept, unpack_kept
from slacktide.deploy.console.history.points import POINTS, STEPS_S, packed, rolled
from slacktide.deploy.console.history.view import Gap
from slacktide.streams.records import Place, Record

T = TypeVar("T")
HORIZON_S = {1: 24 * 3_600, 10: 3 * 24 * 3_600, 60: 7 * 24 * 3_600}
KEPT_S = 7 * 24 * 3_600
_BLOCKS = {f"p{step_s}": span_s for step_s, span_s in HORIZON_S.items()}
_HORIZONS = {**_BLOCKS, "kept": KEPT_S, "entry": KEPT_S, "version": KEPT_S}
_PARTS = 8
"""If the file is full, the oldest of this many parts is deleted."""
_FILLED = 0.9
"""Fill level; the rest is for writes until the next check."""
_OLDEST = {
    "kept": "SELECT min(minute) * 60 FROM kept",
    "entry": "SELECT min(at_ms) / 1000 FROM entry WHERE topic NOT LIKE '%.policy.%'",
    "version": "SELECT min(until_ms) / 1000 FROM version",
}
SIZE_BYTES_MAX = 4 << 30
SIZE_BYTES_MIN = 2 << 20


class Store:
    """Writes the history to a file, and deletes its oldest data first. Only one process may write at a time.

    Raises StoreError if the file can neither be opened nor set aside.
    """

    def __init__(self, path: Path, *, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self.path = path
        self.size_bytes_max = max(size_bytes_max, SIZE_BYTES_MIN)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db, self.lost = opened(path, self.size_bytes_max)
            """A description of the data lost at opening; "": none."""
        except (*DATABASE_ERRORS, OSError) as exc:
            raise StoreError(f"{path}: cannot be opened: {exc}; check that the folder exists and is writable") from exc
        self._reported = ""
        self._added_s = 0
        self._nodes: dict[str, int] = {}
        self._nodes = self._guarded(_known_nodes)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @property
    def newest_s(self) -> int:
        """End of the last stored minute, UTC epoch; 0: none."""
        return self._guarded(lambda db: _meta(db, "newest_s"))

    def texts(self) -> list[str]:
        """Return the stored texts by number."""
        return self._guarded(lambda db: texts_of(db.execute("SELECT id, text FROM text")))

    def cursors(self) -> dict[Place, tuple[int, int]]:
        """Return the next offset by partition, and an offset about two minutes before it."""
        asked = "SELECT topic, partition, next, rewind FROM cursor"
        rows = self._guarded(lambda db: list(sound(db.execute(asked), str, int, int, int)))
        return {Place(topic, number): (following, rewind) for topic, number, following, rewind in rows}

    def add(self, minute: Minute) -> None:
        """Store a whole minute with its offsets, and delete expired data. Raises StoreError if nothing was stored."""
        self._added_s = minute.start_s
        for attempt in range(3):
            try:
                with transaction(self._db) as db:
                    self._write(db, minute)
                break
            except DATABASE_ERRORS as exc:
                if attempt == 2:
                    raise StoreError(f"{self.path}: cannot write a minute: {exc}; free disk space") from exc
                if is_damage(exc):
                    self._set_aside(str(exc))
                else:
                    self._guarded(lambda db: make_room(db, _meta(db, "newest_s")))
        self._guarded(lambda db: expire(db, minute.start_s, self.size_bytes_max))

    def report(self, why: str) -> None:
        """Note damage that a reader met; the writer sets the file aside at its next turn."""
        self._reported = why

    def _guarded(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work. If it shows damage, set the file aside, and do it with the recovered rows.

        Raises StoreError if the file cannot be used for another reason.
        """
        if self._reported:
            self._set_aside(self._reported)
        try:
            try:
                return work(self._db)
            except DATABASE_ERRORS as exc:
                if not is_damage(exc):
                    raise
                self._set_aside(str(exc))
            return work(self._db)
        except (*DATABASE_ERRORS, OSError) as exc:
            raise StoreError(f"{self.path}: cannot be used: {exc}; check the disk") from exc

    def _set_aside(self, why: str) -> None:
        """Go on with the readable rows of a damaged file."""
        self._reported = ""
        self._db.close()
        try:
            self._db, lost = salvaged(self.path, self.size_bytes_max, why)
            to_s = max(self._added_s, _meta(self._db, "newest_s"))
            known = [(number, name) for name, number in self._nodes.items()]
            self._db.executemany("INSERT OR IGNORE INTO node VALUES (?, ?)", known)
            self._nodes = _known_nodes(self._db)
        except (*DATABASE_ERRORS, OSError) as exc:
            self._reported = why  # the next work tries again
            raise StoreError(f"{self.path}: is damaged, and cannot be renamed: {exc}; check the disk") from exc
        self.gap(Gap(from_ms=0, to_ms=to_s * 1_000, what="all", reason=lost))

    def gap(self, gap: Gap) -> None:
        """Record a gap; a longer one with the same start replaces it."""
        with suppress(*DATABASE_ERRORS), transaction(self._db) as db:  # in a full file it is reported again
            row = (gap.from_ms, gap.to_ms, gap.what, gap.reason)
            db.execute("INSERT OR REPLACE INTO gap VALUES (?, ?, ?, ?)", row)

    def roll(self, most: int = 50) -> bool:
        """Roll up complete points of some nodes; return whether there is more to do. Raises StoreError."""
        return self._guarded(lambda db: self._rolled(db, most))

    def _rolled(self, db: sqlite3.Connection, most: int) -> bool:
        newest_s = _meta(db, "newest_s")
        for step_s, coarse_s in pairwise(STEPS_S):
            span_s = coarse_s * POINTS
            done = _meta(db, f"rolled_{coarse_s}") or oldest_block_s(db, step_s) // span_s * span_s
            if done and done + span_s <= newest_s // span_s * span_s:
                return self._roll(step_s, coarse_s, done, most)
        return False

    def _roll(self, step_s: int, coarse_s: int, start_s: int, most: int) -> bool:
        """Write one coarse block for some nodes, and note it as done."""
        span_s, after = coarse_s * POINTS, _meta(self._db, "rolled_node")
        ids = [one for one in sorted(self._nodes.values()) if one > after][:most]
        made = []
        for node in ids:
            keys = [block_key(begin, step_s, node) for begin in range(start_s, start_s + span_s, step_s * POINTS)]
            if found := blocks_of(self._db.execute(blocks_asked(step_s, keys), keys)):
                block = rolled([*map(found.get, keys)], step_s, coarse_s)
                made.append((block_key(start_s, coarse_s, node), *packed(block)))
        try:
            with transaction(self._db) as db:
                db.executemany(f"INSERT OR REPLACE INTO p{coarse_s} VALUES (?, ?, ?)", made)  # noqa: S608
                _set(db, "rolled_node", ids[-1] if len(ids) == most else 0)
                if len(ids) < most:
                    _set(db, f"rolled_{coarse_s}", start_s + span_s)
        except sqlite3.OperationalError as exc:
            if is_damage(exc):
                raise
            return make_room(self._db, _meta(self._db, "newest_s"))  # the file is full
        return True

    def _write(self, db: sqlite3.Connection, minute: Minute) -> None:
        """Write all parts of a minute. Duplicates change nothing, or replace themselves."""
        db.executemany("INSERT OR REPLACE INTO text VALUES (?, ?)", enumerate(minute.texts, minute.texts_from))
        for name in {*minute.blocks, *minute.kept} - self._nodes.keys():
            self._nodes[name] = db.execute("INSERT INTO node (name) VALUES (?)", (name,)).lastrowid or 0
        db.executemany(
            "INSERT OR REPLACE INTO p1 VALUES (?, ?, ?)",
            ((block_key(minute.start_s, 1, self._nodes[name]), *packed(one)) for name, one in minute.blocks.items()),
        )
        for name, records in minute.kept.items():
            _keep(db, self._nodes[name], minute.start_s // POINTS, records)
        for entry in minute.entries:
            one = entry.record
            row = (one.topic, one.partition, one.offset, one.timestamp_ms, entry.node, msgspec.msgpack.encode(one))
            made = db.execute("INSERT OR IGNORE INTO entry VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)
            if made.rowcount:
                pods = [(name, one.timestamp_ms, made.lastrowid) for name in entry.names]
                db.executemany("INSERT OR IGNORE INTO pod VALUES (?, ?, ?)", pods)
        _put_versions(db, minute.versions)
        rates = [(minute.start_s // POINTS, topic, records) for topic, records in minute.rates.items()]
        db.executemany("INSERT OR REPLACE INTO rate VALUES (?, ?, ?)", rates)
        firsts = minute.firsts
        db.executemany(
            "INSERT INTO cursor VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT DO UPDATE SET rewind = min(before, ?3), "
            "before = min(next, ?3), next = ?3",
            ((*place, offset, firsts.get(place, offset)) for place, offset in minute.offsets.items()),
        )
        _set(db, "newest_s", minute.start_s + POINTS)

    def size_bytes(self) -> int:
        """Return the size of the pages in use."""
        return size_bytes(self._db)


def _meta(db: sqlite3.Connection, name: str) -> int:
    """Return a number of the table; 0: it is not there, or was damaged."""
    found = db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return found[0] if found and isinstance(found[0], int) else 0


def _known_nodes(db: sqlite3.Connection) -> dict[str, int]:
    """Return nodes' numbers by name; a damaged row is deleted, so that the next number is one that fits into a key."""
    db.execute("DELETE FROM node WHERE typeof(name) != 'text' OR id NOT BETWEEN 1 AND ?", ((1 << NODE_BITS) - 1,))
    return numbers_of(db.execute("SELECT name, id FROM node"))


def _set(db: sqlite3.Connection, name: str, value: int) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _keep(db: sqlite3.Connection, node: int, minute: int, records: Sequence[Record]) -> None:
    key = node << 32 | minute
    last = db.execute(
        "SELECT key, records FROM kept WHERE key BETWEEN ? AND ? ORDER BY key DESC LIMIT 1", (node << 32, key)
    ).fetchone()
    before: Mapping[str, int] = {}
    for earlier in readable(unpack_kept, () if last is None else (last[1],)):
        if last[0] == key:
            before, records = earlier.before, [*earlier.records, *records]
        else:
            before = {**earlier.before} | {one.topic: last[0] & 0xFFFFFFFF for one in earlier.records}
    db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (key, minute, pack_kept(before, records)))


def _put_versions(db: sqlite3.Connection, versions: Iterable[Version]) -> None:
    """Store versions, oldest first."""
    for one in versions:
        key = (one.topic, one.key)
        db.execute("INSERT OR IGNORE INTO object (topic, key) VALUES (?, ?)", key)
        [number] = db.execute("SELECT id FROM object WHERE topic = ? AND key = ?", key).fetchone()
        before = "UPDATE version SET until_ms = ?1 WHERE object = ?2 AND until_ms IS NULL AND at_ms < ?1"
        db.execute(before, (one.at_ms, number))
        if one.record is not None:
            blob = zlib.compress(msgspec.msgpack.encode(msgspec.structs.replace(one.record, headers=())), 6)
            row = (number, one.at_ms, one.row, blob)
            db.execute("INSERT OR REPLACE INTO version (object, at_ms, row, record) VALUES (?, ?, ?, ?)", row)


def expire(db: sqlite3.Connection, now_s: int, size_bytes_max: int) -> None:
    """Delete expired data, then the oldest while the file is too large."""
    with suppress(sqlite3.OperationalError):
        for what, span_s in _HORIZONS.items():
            _drop(db, what, now_s - span_s)
        while size_bytes(db) > _FILLED * size_bytes_max and make_room(db, now_s):
            pass


def make_room(db: sqlite3.Connection, newest_s: int) -> bool:
    """Delete a part of the oldest data, relative to its horizon; return whether there was any."""
    oldest_s = {what: _oldest_s(db, what, newest_s) for what in _HORIZONS}
    what = max(_HORIZONS, key=lambda what: (newest_s - oldest_s[what]) / _HORIZONS[what])
    span_s = newest_s - oldest_s[what]
    if span_s <= 0:
        return False
    with suppress(sqlite3.OperationalError):
        least_s = int(what[1:]) * POINTS if what in _BLOCKS else POINTS
        _drop(db, what, oldest_s[what] + max(least_s, span_s // _PARTS))
    return True


def size_bytes(db: sqlite3.Connection) -> int:
    """Return the size of the pages in use."""
    page, pages, free = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    return int(page * (pages - free))


def oldest_block_s(db: sqlite3.Connection, step_s: int) -> int:
    """Start of the oldest block of one resolution; 0: none."""
    found = db.execute(f"SELECT min(key) FROM p{step_s} WHERE key >= 0").fetchone()[0]  # noqa: S608 - our own names
    return 0 if found is None else (int(found) >> NODE_BITS) * step_s * POINTS


def _drop(db: sqlite3.Connection, what: str, before_s: int) -> None:
    with transaction(db):
        if what == "kept":
            db.execute("DELETE FROM kept WHERE minute < ?", (before_s // POINTS,))
        elif what == "version":
            if db.execute("DELETE FROM version WHERE until_ms < ?", (before_s * 1_000,)).rowcount:
                db.execute("DELETE FROM object WHERE NOT EXISTS (SELECT 1 FROM version WHERE object = object.id)")
        elif what == "entry":
            db.execute("DELETE FROM entry WHERE at_ms < ? AND topic NOT LIKE '%.policy.%'", (before_s * 1_000,))
            db.execute("DELETE FROM pod WHERE at_ms < ?", (before_s * 1_000,))
            db.execute("DELETE FROM rate WHERE minute < ?", (before_s // POINTS,))
            db.execute("DELETE FROM gap WHERE to_ms < ?", (before_s * 1_000,))
        else:
            db.execute(f"DELETE FROM {what} WHERE key < ?", (block_key(before_s, int(what[1:]), 0),))  # noqa: S608


def _oldest_s(db: sqlite3.Connection, what: str, newest_s: int) -> int:
    """Return the oldest second of the data; default: ``newest_s``."""
    if what in _BLOCKS:
        return oldest_block_s(db, int(what[1:])) or newest_s
    found = db.execute(_OLDEST[what]).fetchone()[0]
    return newest_s if found is None else int(found)
