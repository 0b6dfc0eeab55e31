"""Classifies errors of SQLite: damage of the file, or a passing cause."""

import sqlite3

_PASSING = frozenset({
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
})  # fmt: skip
"""Results of the disk, its rights and other processes. The file may be intact."""
DATABASE_ERRORS = (sqlite3.Error, UnicodeDecodeError, OverflowError)
"""What a statement on any bytes raises: sqlite3 also lets through what it meets in a damaged name or number."""


def is_damage(error: Exception) -> bool:
    """Return whether one of ``DATABASE_ERRORS`` shows that the file is damaged: its pages, its schema, or its values.

    Class and code are both needed: sqlite3 reports also a schema that a flipped bit renamed as an OperationalError.
    """
    if not isinstance(error, sqlite3.DatabaseError):
        return isinstance(error, UnicodeDecodeError | OverflowError)
    code = getattr(error, "sqlite_errorcode", None)  # None: sqlite3's own, such as of a text that is not UTF-8
    if code is None:
        return type(error) is sqlite3.DatabaseError
    return code & 0xFF not in _PASSING
