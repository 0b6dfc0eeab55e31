"""The store's file: tables, opening, recovery, and reading by threads. See docs/console-store.md."""

import logging
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from slacktide.agents.damage import DATABASE_ERRORS, is_damage
from slacktide.deploy.console.history.points import POINTS, Block, unpack
from slacktide.schemas.errors import BadMessageError, SlacktideError

log = logging.getLogger(__name__)
FORMAT = 4
"""File format. A file of another format is set aside."""
NODE_BITS = 20
PAGE_BYTES = 32_768
"""A page holds several blocks with little waste."""
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
CREATE TABLE object (id INTEGER PRIMARY KEY, topic TEXT, key BLOB, UNIQUE (topic, key));
CREATE TABLE version (object INTEGER, at_ms INTEGER, until_ms INTEGER, row BLOB, record BLOB,
  PRIMARY KEY (object, at_ms)) WITHOUT ROWID;
CREATE INDEX version_age ON version (until_ms);
CREATE TABLE rate (minute INTEGER, topic TEXT, records INTEGER, PRIMARY KEY (minute, topic)) WITHOUT ROWID;
CREATE TABLE cursor (topic TEXT, partition INTEGER, next INTEGER, before INTEGER, rewind INTEGER,
  PRIMARY KEY (topic, partition)) WITHOUT ROWID;
CREATE TABLE gap (from_ms INTEGER, to_ms INTEGER, what TEXT, reason TEXT, PRIMARY KEY (from_ms, what)) WITHOUT ROWID;
"""
TEXTS_MAX = 1 << 16
"""The most texts that a recorder numbers; one more stands for all others."""
T = TypeVar("T")
R = TypeVar("R")
_ROW_ERRORS = (
    zlib.error, struct.error, msgspec.MsgspecError, BadMessageError, ValueError, TypeError, OverflowError, LookupError,
    RecursionError,
)  # fmt: skip
"""What the decoding of a damaged row raises."""
_SALVAGED = ("meta", "node", "text", "p60", "p10", "kept", "entry", "pod", "object", "version", "rate", "gap", "p1")


class StoreError(SlacktideError):
    """The file cannot be used; the message has the reason and advice."""


def block_key(start_s: int, step_s: int, node: int) -> int:
    """Return the key of a block: by time, then by node."""
    return start_s // (step_s * POINTS) << NODE_BITS | node


def blocks_asked(step_s: int, keys: Sequence[int]) -> str:
    """Return the SQL query for these blocks of one resolution."""
    return f"SELECT * FROM p{step_s} WHERE key IN ({','.join('?' * len(keys))})"  # noqa: S608 - our own names


def readable(decoded: Callable[[T], R], rows: Iterable[T]) -> Iterator[R]:
    """Decode rows; a damaged one is left out."""
    for row in rows:
        with suppress(*_ROW_ERRORS):
            yield decoded(row)


def sound(rows: Iterable[tuple[Any, ...]], *kinds: type) -> Iterator[tuple[Any, ...]]:
    """Yield rows whose values have the types of their columns. One changed bit makes a text a blob."""
    return (row for row in rows if all(map(isinstance, row, kinds)))


def numbers_of(rows: Iterable[tuple[Any, ...]]) -> dict[str, int]:
    """Return nodes' numbers by name from rows of both."""
    return {name: number for name, number in sound(rows, str, int) if 0 < number < 1 << NODE_BITS}


def blocks_of(rows: Iterable[tuple[int, bytes, bytes | None]]) -> dict[int, Block]:
    """Decode its result, by key, without damaged rows."""

    def block(row: tuple[int, bytes, bytes | None]) -> tuple[int, Block]:
        key, points, extremes = row
        return key, unpack(points) + (unpack(extremes) if extremes else [])

    return dict(readable(block, rows))


def texts_of(rows: Iterable[tuple[int, str]], first: int = 0) -> list[str]:
    """Return texts by number, from the first on. A lost one keeps its place, so that the others keep theirs."""
    found = {number: text for number, text in sound(rows, int, str) if first <= number <= TEXTS_MAX}
    return [
        found.get(number, f"(text {number} was lost)") for number in range(first, max(found, default=first - 1) + 1)
    ]


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open the file as a reader or as the writer."""
    mode = "ro" if read_only else "rwc"
    db = sqlite3.connect(f"file:{path}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False)
    db.text_factory = lambda raw: raw.decode(errors="replace")  # a damaged text costs no other row
    db.execute("PRAGMA busy_timeout=5000")
    db.execute("PRAGMA cache_size=-4096")
    return db


def opened(path: Path, size_bytes_max: int) -> tuple[sqlite3.Connection, str]:
    """Open the file for writing; return also a description of lost data ("": none).

    Raises:
        sqlite3.Error: it is locked or not permitted, or the disk is full; the file may be intact.
    """
    try:
        db = connect(path)
        try:
            _prepare(db, path, size_bytes_max)
        except BaseException:
            db.close()
            raise
    except DATABASE_ERRORS as exc:
        if not is_damage(exc):
            raise
        return salvaged(path, size_bytes_max, str(exc))
    return db, ""


def salvaged(path: Path, size_bytes_max: int, why: str) -> tuple[sqlite3.Connection, str]:
    """Set a damaged file aside and copy its readable rows; see ``opened``."""
    aside = path.with_name(f"{path.name}.aside")
    for end in ("", "-wal", "-shm"):
        old, new = (one.with_name(one.name + end) for one in (path, aside))
        new.unlink(missing_ok=True)
        if old.exists():
            old.replace(new)
    db = connect(path)
    _prepare(db, path, size_bytes_max)
    rows = 0
    with suppress(*DATABASE_ERRORS), closing(connect(aside)) as old_db:
        if old_db.execute("PRAGMA user_version").fetchone()[0] == FORMAT:
            rows = sum(_copied(old_db, db, table) for table in _SALVAGED)
    lost = f"{path.name} could not be read ({why}); {rows:,} rows were recovered from {aside.name}"
    log.warning("the history file was damaged, and was renamed", extra={"why": lost})
    newest = db.execute("SELECT max(key) FROM p1").fetchone()[0]
    newest_s = 0 if newest is None else ((newest >> NODE_BITS) + 1) * POINTS
    db.execute("INSERT OR REPLACE INTO meta VALUES ('newest_s', ?)", (newest_s,))
    return db, lost


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run a transaction: commit all writes, or none."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        with suppress(*DATABASE_ERRORS):
            db.execute("ROLLBACK")
        raise


def _prepare(db: sqlite3.Connection, path: Path, size_bytes_max: int) -> None:
    if not db.execute("PRAGMA page_count").fetchone()[0]:
        db.execute(f"PRAGMA page_size={PAGE_BYTES}")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("PRAGMA journal_size_limit=16777216")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if not version:
        db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={FORMAT}; COMMIT;")
    elif version != FORMAT:
        raise sqlite3.DatabaseError(f"format {version}, but this release writes {FORMAT}")
    page, pages = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count"))
    db.execute(f"PRAGMA max_page_count={max(size_bytes_max // page, pages)}")
    wal = path.with_name(path.name + "-wal")  # it may have pages that the file lacks
    if path.stat().st_size < page * pages and not (wal.exists() and wal.stat().st_size):
        raise sqlite3.DatabaseError("the file is truncated before its last page")
    for table in _SALVAGED:  # the ends of each tree, which a truncated file lacks
        db.execute(f"SELECT * FROM {table} ORDER BY 1 DESC LIMIT 1").fetchall()  # noqa: S608 - our own names


def _copied(old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> int:
    """Copy a table's readable rows, from both ends."""
    width = len(new.execute(f"PRAGMA table_info({table})").fetchall())
    put = f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * width)})"  # noqa: S608 - our own names
    count = 0
    new.execute("BEGIN")
    for order in ("ASC", "DESC"):
        try:
            for row in old.execute(f"SELECT * FROM {table} ORDER BY 1 {order}"):  # noqa: S608
                count += new.execute(put, row).rowcount
        except DATABASE_ERRORS:
            continue
        break
    new.execute("COMMIT")
    return count
