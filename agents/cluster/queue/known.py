"""What the cluster has and what Kafka has of a queue's objects: which records to write, and which to delete."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from slacktide.streams.records import Record

SOURCE = "bridge/queue"
"""Value of the header ce_source. Records of other sources, such as ``slacktide queue publish``, are never deleted."""


class Place(NamedTuple):
    """The topic and key of a record."""

    topic: str
    key: str


class _Latest(NamedTuple):
    offset: int
    digest: bytes | None
    ours: bool


class Known:
    """The cluster's objects and Kafka's records."""

    def __init__(self) -> None:
        self._wanted: dict[Place, bytes] = {}
        self._latest: dict[Place, _Latest] = {}
        self._differs: dict[Place, None] = {}
        self._invalid: set[Place] = set()
        """Objects in the cluster that cannot be used: their last valid records stay."""

    def begin(self) -> None:
        """Forget the records; the topics are read again."""
        self._latest.clear()
        self._differs = dict.fromkeys(self._wanted)

    def read(self, record: Record) -> None:
        """Take a record from its topic."""
        place = Place(record.topic, (record.key or b"").decode(errors="replace"))
        ours = dict(record.headers).get("ce_source") == SOURCE.encode()
        self._put(place, _Latest(record.offset, _digest(record.value), ours))

    def wrote(self, place: Place, value: bytes | None, offset: int) -> None:
        """Take an acknowledged write. A later record of another writer supersedes it."""
        self._put(place, _Latest(offset, _digest(value), ours=True))

    def want(self, place: Place, value: bytes) -> None:
        """Take an object that exists in the cluster."""
        self._invalid.discard(place)
        self._wanted[place] = value
        self._compare(place)

    def keep(self, place: Place) -> None:
        """Take an object that exists in the cluster and is invalid: a record of it is not deleted."""
        if place not in self._wanted:
            self._invalid.add(place)

    def unwant(self, place: Place) -> None:
        """Take an object that no longer exists in the cluster."""
        if self._wanted.pop(place, None) is not None or place in self._invalid:
            self._invalid.discard(place)
            self._compare(place)

    def complete(self) -> None:
        """Mark the list of objects as complete. Other records of this source are then deleted."""
        for place in self._latest.keys() - self._wanted.keys():
            self._compare(place)

    def pending(self, most: int) -> list[tuple[Place, bytes | None]]:
        """Return the next records to write; a value of None deletes."""
        places = [place for place, _ in zip(self._differs, range(most), strict=False)]
        return [(place, self._wanted.get(place)) for place in places]

    def give_up(self, places: Iterable[Place]) -> None:
        """Skip records that Kafka rejected until they change."""
        for place in places:
            self._differs.pop(place, None)

    def _put(self, place: Place, latest: _Latest) -> None:
        known = self._latest.get(place)
        if known is None or latest.offset > known.offset:
            self._latest[place] = latest
            if place in self._wanted or place in self._differs:
                self._compare(place)

    def _compare(self, place: Place) -> None:
        latest, wanted = self._latest.get(place), self._wanted.get(place)
        if wanted is None:
            same = latest is None or latest.digest is None or not latest.ours or place in self._invalid
        else:
            same = latest is not None and latest.digest == _digest(wanted)
        if same:
            self._differs.pop(place, None)
        else:
            self._differs[place] = None


def _digest(value: bytes | None) -> bytes | None:
    return None if value is None else blake2b(value, digest_size=16).digest()
