"""Versions of objects in the store: Jobs, queue and credit at any moment."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Mapping

import msgspec

from slacktide.deploy.console.history.job_row import JobRow, unpack_row
from slacktide.deploy.console.history.minute import Version
from slacktide.deploy.console.history.reading import Reading
from slacktide.schemas.topics import JOB_STATUS, Topic
from slacktide.streams.records import Record

_IN_FORCE = """
FROM object JOIN version ON version.object = object.id AND version.at_ms = (
  SELECT max(at_ms) FROM version WHERE object = object.id AND at_ms <= ?1)
WHERE object.topic = ?2 AND (version.until_ms IS NULL OR version.until_ms > ?1)
"""


def put_versions(db: sqlite3.Connection, versions: Iterable[Version]) -> None:
    """Store versions, oldest first. Duplicates replace themselves."""
    for one in versions:
        db.execute("INSERT OR IGNORE INTO object (topic, key) VALUES (?, ?)", (one.topic, one.key))
        asked = "SELECT id FROM object WHERE topic = ? AND key = ?"
        [number] = db.execute(asked, (one.topic, one.key)).fetchone()
        db.execute(
            "UPDATE version SET until_ms = ?1 WHERE object = ?2 AND until_ms IS NULL AND at_ms < ?1",
            (one.at_ms, number),
        )
        if one.record is not None:
            blob = zlib.compress(msgspec.msgpack.encode(msgspec.structs.replace(one.record, headers=())), 6)
            row = (number, one.at_ms, one.row, blob)
            db.execute("INSERT OR REPLACE INTO version (object, at_ms, row, record) VALUES (?, ?, ?, ?)", row)


def rows_at(reading: Reading, at_ms: int) -> Mapping[bytes, JobRow]:
    """Return rows of Jobs by key, at a moment."""
    found = reading.all(f"SELECT object.key, version.row {_IN_FORCE}", at_ms, JOB_STATUS.name)
    return {key: unpack_row(row) for key, row in found}


def records_at(reading: Reading, at_ms: int, topic: Topic) -> Mapping[bytes, Record]:
    """Return records of a topic by key, at a moment."""
    found = reading.all(f"SELECT object.key, version.record {_IN_FORCE}", at_ms, topic.name)
    return {key: _record(blob) for key, blob in found}


def record_at(reading: Reading, at_ms: int, topic: Topic, key: bytes) -> Record | None:
    """Return one object at a moment; None: it did not exist."""
    asked = f"SELECT version.record {_IN_FORCE} AND object.key = ?3"
    found = reading.one(asked, at_ms, topic.name, key)
    return _record(found[0]) if found else None


def _record(blob: bytes) -> Record:
    return msgspec.msgpack.decode(zlib.decompress(blob), type=Record)
