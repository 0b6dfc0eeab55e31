"""Counts what users wrote into an object and nobody can read: each text once per object, not at each update."""

import hashlib
from collections.abc import Sequence

from prometheus_client import Counter

IGNORED = Counter(
    "slacktide_api_ignored",
    "Labels and annotations (field), and whole objects (object), that could not be read and were ignored.",
    ["kind", "part"],
)
REASON = "FieldIgnored"
"""The reason of an Event about such a field."""
OBJECTS_MAX = 10_000


class Ignored:
    """The ignored fields of each object, by uid; those of the least recently changed are forgotten first."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._known: dict[str, Sequence[str]] = {}

    def new(self, uid: str, notes: Sequence[str]) -> list[str]:
        """Count and return the notes that the object did not have before."""
        before = self._known.pop(uid, ())
        found = [note for note in notes if note not in before]
        if notes:
            self._known[uid] = notes
            if len(self._known) > OBJECTS_MAX:
                del self._known[next(iter(self._known))]
        if found:
            IGNORED.labels(self._kind, "field").inc(len(found))
        return found


def once_of(note: str) -> str:
    """Return what distinguishes the Event about this text, whichever part creates it."""
    return hashlib.blake2b(note.encode(errors="replace"), digest_size=8).hexdigest()
