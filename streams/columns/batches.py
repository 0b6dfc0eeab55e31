"""Decodes record batches as columns: one step reads the same varint of all records. Splits fetches into turns.

The careful reader in ``streams.kafka`` decodes a batch again if one of its records is damaged.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from slacktide.streams.kafka.fetched import FetchedBatches
from slacktide.streams.kafka.payload import HEADERS_MAX
from slacktide.streams.records import Place
from slacktide.streams.taken import Taken

Numbers: TypeAlias = NDArray[np.int64]

FEW = 24
"""Below this many records, decoding them one by one is faster."""
_VARINT_BITS = 63
"""Longer varints are left to the careful reader."""
_SMALL = 0x80
_ZIGZAG = np.array([number >> 1 ^ -(number & 1) for number in range(_SMALL)], np.int64)


def taken(fetched: Sequence[Sequence[Any]]) -> list[Taken]:
    """Return the records of each partition from results of aiokafka's ``getmany``: whole fetches, or single records."""
    if all(isinstance(one, FetchedBatches) for items in fetched for one in items):
        found = iter(columns([one for items in fetched for one in items]))
        joined: list[Taken] = []
        for items in fetched:
            parts = [next(found) for _ in items]
            whole = parts[0] if parts else Taken()
            for part in parts[1:]:
                whole.extend(part)
            joined.append(whole)
        return joined
    return [_columns_of(items) for items in fetched]


def columns(fetches: Sequence[FetchedBatches]) -> list[Taken]:
    """Decode the records of all fetches together; return those of each fetch."""
    if sum(len(one.starts) for one in fetches) < FEW:
        return [_spliced(Taken(), one, range(len(one.plain))) for one in fetches]
    table = _Table(fetches)
    taken, damaged = table.taken(), table.damaged()
    made: list[Taken] = []
    record = batch = 0
    for one in fetches:
        records, batches = record + len(one.starts), batch + len(one.plain)
        mine = [number - batch for number in damaged if batch <= number < batches]
        made.append(_spliced(taken.part(record, records) if len(fetches) > 1 else taken, one, mine))
        record, batch = records, batches
    return made


def _spliced(taken: Taken, fetched: FetchedBatches, damaged: Sequence[int]) -> Taken:
    """Return all records in order. The careful reader decodes the plain batches numbered in ``damaged``."""
    pieces = [(at, at, records) for at, records in fetched.others]
    pieces += [(*fetched.span(number), fetched.read_again(number)) for number in damaged]
    if not pieces:
        return taken
    whole, done = Taken(), 0
    for begin, end, records in sorted(pieces, key=itemgetter(0, 1)):
        whole.extend(taken.part(done, begin))
        whole.extend(_columns_of(records))
        done = end
    whole.extend(taken.part(done, len(taken)))
    return whole


def _columns_of(records: Sequence[Any]) -> Taken:
    return Taken(
        [record.offset for record in records],
        [record.timestamp for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.headers for record in records],
    )


class _Table:
    def __init__(self, fetches: Sequence[FetchedBatches]) -> None:
        self._raw = b"".join(one.raw for one in fetches)
        shifts = [0, *accumulate(len(one.raw) for one in fetches)]
        starts = np.concatenate([_shifted(one.starts, by) for one, by in zip(fetches, shifts, strict=False)])
        self._ends = np.concatenate([_shifted(one.ends, by) for one, by in zip(fetches, shifts, strict=False)])
        _, bases, last_deltas, times, by_broker, _ = np.array(
            list(chain.from_iterable(one.plain for one in fetches)), np.int64
        ).T
        counts = list(chain.from_iterable(one.counts() for one in fetches))
        self._batch = np.repeat(np.arange(len(counts)), counts)
        row = _Row(self._raw, starts)
        plain = row.number() == 0  # attributes: Kafka uses none
        since_ms, delta = row.number(), row.number()
        self._key_at, self._key_bytes = row.sized()
        self._value_at, self._value_bytes = row.sized()
        self._headers_at = row.at
        row.pass_headers()
        self._offsets = bases[self._batch] + delta
        self._times_ms = times[self._batch] + np.where(by_broker[self._batch], 0, since_ms)
        rises = np.ones(len(delta), np.bool_)
        rises[1:] = (delta[1:] > delta[:-1]) | (self._batch[1:] != self._batch[:-1])
        placed = rises & (delta >= 0) & (delta <= last_deltas[self._batch])
        self._sound = plain & placed & row.sound & (row.at == self._ends)

    def damaged(self) -> list[int]:
        """Return the numbers of the batches that have a damaged record."""
        return [] if self._sound.all() else np.unique(self._batch[~self._sound]).tolist()

    def taken(self) -> Taken:
        """Return all records. Those of damaged batches are undefined."""
        raw = self._raw
        headers = zip(self._headers_at.tolist(), self._ends.tolist(), strict=True)
        return Taken(
            self._offsets.tolist(),
            self._times_ms.tolist(),
            _slices(raw, self._key_at, self._key_bytes),
            _slices(raw, self._value_at, self._value_bytes),
            [raw[begin:end] for begin, end in headers],
        )


class _Row:
    """Reads field after field, each for all records.

    Bytes read beyond a record's end are undefined: the record is then not ``sound``, or its position is past its end.
    """

    def __init__(self, raw: bytes, starts: Numbers) -> None:
        self._bytes = np.frombuffer(raw, np.uint8)
        self.at = starts
        """Where the next field of each record begins."""
        self.sound = np.ones(len(starts), np.bool_)

    def number(self) -> Numbers:
        """Read a varint."""
        byte = self._bytes.take(self.at, mode="clip")
        self.at = self.at + 1
        if byte.max() < _SMALL:
            return _ZIGZAG.take(byte)
        value, more = (byte & 0x7F).astype(np.int64), byte >= _SMALL
        for shift in range(7, _VARINT_BITS, 7):
            byte = self._bytes.take(self.at, mode="clip")
            value |= np.where(more, (byte & 0x7F).astype(np.int64) << shift, 0)
            self.at = self.at + more
            more &= byte >= _SMALL
            if not more.any():
                break
        self.sound &= ~more
        return (value >> 1) ^ -(value & 1)

    def sized(self, least: int = -1) -> tuple[Numbers, Numbers]:
        """Return where a field begins, and its size in bytes; -1: null. ``least`` is the smallest allowed size."""
        size = self.number()
        self.sound &= size >= least
        begin = self.at
        self.at = begin + np.minimum(np.maximum(size, 0), len(self._bytes))
        return begin, size

    def pass_headers(self) -> None:
        """Skip the headers and check their count and sizes."""
        count = self.number()
        self.sound &= (count >= 0) & (count <= HEADERS_MAX)
        count = np.where(self.sound, count, 0)
        fewest, most = int(count.min()), int(count.max())
        for number in range(most):
            before = self.at
            sound = self.sound
            self.sized(least=0)
            self.sized()
            if number >= fewest:  # some records have no more
                none = number >= count
                self.at = np.where(none, before, self.at)
                self.sound = np.where(none, sound, self.sound)


def _shifted(places: Sequence[int], by: int) -> Numbers:
    return np.array(places, np.int64) + by


def _slices(raw: bytes, begins: Numbers, sizes: Numbers) -> list[bytes | None]:
    places = zip(begins.tolist(), (begins + sizes).tolist(), strict=True)
    return [raw[begin:end] if begin <= end else None for begin, end in places]


TURN_RECORDS_MAX = 1_000
"""Some 30 ms of work."""


class Turns:
    """A queue of fetched records."""

    def __init__(self) -> None:
        self._left: dict[Place, tuple[Taken, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, fetched: Mapping[Place, Sequence[Any]]) -> int:
        """Add the records of a fetch; return how many."""
        columns = taken(list(fetched.values()))
        self._left = {place: (one, 0) for place, one in zip(fetched, columns, strict=True) if len(one)}
        return sum(map(len, columns))

    def next(self) -> dict[Place, Taken]:
        """Return the next turn, by partition; empty at the end.

        It takes equally from each partition: a turn over more nodes costs less per sample.
        """
        turn: dict[Place, Taken] = {}
        room = TURN_RECORDS_MAX
        places = sorted(self._left, key=self._records_left)
        for number, place in enumerate(places):
            one, done = self._left[place]
            some = one.part(done, done + room // (len(places) - number))
            if not some:
                continue
            turn[place] = some
            room -= len(some)
            self._left[place] = one, done + len(some)
            if not self._records_left(place):
                del self._left[place]
        return turn

    def _records_left(self, place: Place) -> int:
        one, done = self._left[place]
        return len(one) - done

    def clear(self) -> None:
        """Drop the rest after a rebalance. The new owners fetch it again."""
        self._left.clear()
