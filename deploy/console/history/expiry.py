"""Deletes expired data from the store, and the oldest if the file is too large."""

from __future__ import annotations

import sqlite3
from contextlib import suppress

from slacktide.deploy.console.history.file import NODE_BITS, block_key, transaction
from slacktide.deploy.console.history.points import POINTS

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


def expire(db: sqlite3.Connection, now_s: int, size_bytes_max: int) -> None:
    """Delete expired data, then the oldest while the file is too large."""
    with suppress(sqlite3.OperationalError):
        for what, span_s in _HORIZONS.items():
            _drop(db, what, now_s - span_s)
        while size_bytes(db) > _FILLED * size_bytes_max and make_room(db, now_s):
            pass


def make_room(db: sqlite3.Connection, newest_s: int) -> bool:
    """Delete a part of the oldest data, relative to its horizon; return whether there was any."""
    shares = {what: (newest_s - _oldest_s(db, what, newest_s)) / span for what, span in _HORIZONS.items()}
    what, share = max(shares.items(), key=lambda one: one[1])
    if share <= 0:
        return False
    with suppress(sqlite3.OperationalError):
        oldest_s = _oldest_s(db, what, newest_s)
        least_s = int(what[1:]) * POINTS if what in _BLOCKS else POINTS
        _drop(db, what, oldest_s + max(least_s, (newest_s - oldest_s) // _PARTS))
    return True


def size_bytes(db: sqlite3.Connection) -> int:
    """Return the size of the pages in use."""
    page, pages, free = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
    )
    return int(page * (pages - free))


def oldest_block_s(db: sqlite3.Connection, step_s: int) -> int:
    """Start of the oldest block of one resolution; 0: none."""
    found = db.execute(f"SELECT min(key) FROM p{step_s}").fetchone()[0]  # noqa: S608 - our own names
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
