"""Encodes records as in Kafka's record batches, from the key's length to the last header. Pure.

Parts that many records share are encoded once. The fields before depend on the position in the batch.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from slacktide.schemas.command import NodesKept
from slacktide.schemas.headers import Header, Headers
from slacktide.streams.kept import Folding, Keep
from slacktide.streams.records import Out


def rendered(key: bytes, value: bytes | None, headers: bytes) -> bytes:
    """Encode a record; ``key`` and ``headers`` are encoded already. ``value`` None: a tombstone."""
    pieces = (key, varint(-1), headers) if value is None else (key, varint(len(value)), value, headers)
    return b"".join(pieces)


def rendered_key(key: bytes | None) -> bytes:
    """Encode a key."""
    return varint(-1) if key is None else varint(len(key)) + key


def rendered_headers(headers: Sequence[Header]) -> bytes:
    """Encode headers."""
    parts = [varint(len(headers))]
    for name, value in headers:
        text = name.encode()
        parts += (varint(len(text)), text, varint(len(value)), value)
    return b"".join(parts)


@lru_cache(maxsize=1 << 14)
def varint(number: int) -> bytes:
    """Encode a number as a zigzag varint."""
    number = number << 1 ^ number >> 63
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def headers_in(raw: bytes) -> Headers:
    """Decode headers from bytes of checked length, starting with their count; none if a name is not UTF-8."""
    found: list[Header] = []
    count, at = varint_at(raw, 0)
    for _ in range(count):
        size, at = varint_at(raw, at)
        name = raw[at : at + size]
        at += size
        size, at = varint_at(raw, at)
        value = raw[at : at + size] if size >= 0 else None
        at += max(0, size)
        try:
            found.append((name.decode(), value))  # type: ignore[arg-type]  # as the client has it: None, though seldom
        except UnicodeDecodeError:
            return ()
    return tuple(found)


def varint_at(raw: bytes, at: int) -> tuple[int, int]:
    """Decode a varint; return it and its end."""
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7


def field_at(record: bytes, at: int) -> tuple[bytes | None, int]:
    """Decode a key or value; return it and its end."""
    size, at = varint_at(record, at)
    return (None, at) if size < 0 else (record[at : at + size], at + size)


class RenderedOut(Out, frozen=True, kw_only=True, gc=False):
    """A record with encoded headers: ``headers`` is empty, ``written_headers`` decodes them."""

    key: bytes
    value: bytes
    tail: bytes

    def written_headers(self) -> Headers:
        """Decode the headers."""
        return headers_in(self.tail)


class RenderedAnswers(Sequence[Out]):
    """Answers to samples, in order. Encoded ones become objects on access.

    ``partitions`` and ``keys``: of each sample. ``results``: for each sample its encoded answer, that it keeps, or a
    list of records. ``turn``: what all that keep have in common. ``topic``, ``counts`` by kind and ``ages_ms`` (see
    ``Out.age_ms``): of the encoded answers and those that keep. ``repeated``: places of those to repeated samples.
    """

    def __init__(
        self,
        topic: str,
        partitions: Sequence[int],
        keys: Sequence[bytes | None],
        results: Sequence[bytes | Keep | Sequence[Out]],
        turn: NodesKept,
        counts: Mapping[str, int],
        ages_ms: Sequence[int],
        repeated: Container[int],
    ) -> None:
        self.counts, self.ages_ms = Counter(counts), list(ages_ms)
        self.by_place: dict[tuple[str, int], list[bytes]] = {}
        """What is written: records of a partition, in order; answers that keep are put together."""
        self.placeless: list[Out] = []
        self.nodes: set[bytes | None] = set()
        """Keys of nodes whose answers are a sign of life."""
        self._topic, self._partitions, self._keys, self._results = topic, partitions, keys, results
        self._turn, self._repeated = turn, repeated
        self._outs: list[Out] | None = None
        folding = Folding(topic)
        for place, (partition, key, one) in enumerate(zip(partitions, keys, results, strict=True)):
            kind = one.__class__
            if kind is Keep:
                self._put(folding.add(partition, key, turn, one))  # type: ignore[arg-type]
            elif kind is bytes:
                self._put(folding.before(partition, key))
                self.by_place.setdefault((topic, partition), []).append(one)  # type: ignore[arg-type]
            else:
                for out in one:
                    self._add(out, folding)  # type: ignore[arg-type]  # the others are above
                continue
            if place not in repeated:
                self.nodes.add(key)
        self._put(folding.rest())

    def _put(self, outs: Iterable[Out]) -> None:
        for out in outs:
            if out.partition is None:
                self.placeless.append(out)
            else:
                self.by_place.setdefault((out.topic, out.partition), []).append(record_of(out))

    def _add(self, out: Out, folding: Folding) -> None:
        if out.answer:
            self.counts[out.answer] += 1
        if out.sign_of_life:
            self.nodes.add(out.key)
        if out.age_ms is not None:
            self.ages_ms.append(out.age_ms)
        self._put(folding.take(out) if out.answer else [out])

    def of_samples(self) -> list[bytes | None]:
        """Return the value of the answer to each sample; None: there is none."""
        topic, found = self._topic, list[bytes | None]()
        for place, one in enumerate(self._results):
            if isinstance(one, bytes):
                found.append(_value_of(one))
            elif isinstance(one, Keep):
                found.append(self._kept(place, one).value)
            else:
                found.append(next((out.value for out in one if out.topic == topic), None))
        return found

    def _kept(self, place: int, one: Keep) -> Out:
        return one.out(
            self._topic, self._partitions[place], self._keys[place], self._turn, repeated=place in self._repeated
        )

    def _all(self) -> list[Out]:
        if self._outs is None:
            self._outs = []
            for place, (partition, one) in enumerate(zip(self._partitions, self._results, strict=True)):
                if isinstance(one, bytes):
                    self._outs.append(_read_back(self._topic, partition, one, repeated=place in self._repeated))
                elif isinstance(one, Keep):
                    self._outs.append(self._kept(place, one))
                else:
                    self._outs += one
        return self._outs

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Out]:
        return iter(self._all())

    def __getitem__(self, place: Any) -> Any:
        return self._all()[place]


def _value_of(record: bytes) -> bytes:
    size, at = varint_at(record, 0)
    size, at = varint_at(record, at + size)
    return record[at : at + size]


def _read_back(topic: str, partition: int, record: bytes, *, repeated: bool) -> RenderedOut:
    size, at = varint_at(record, 0)
    key = record[at : at + size]
    size, at = varint_at(record, at + size)
    value = record[at : at + size]
    decided_ms, observed_ms = (_number_behind(value, name) for name in (b'"decided_ms":', b'"observed_ms":'))
    return RenderedOut(
        topic=topic,
        partition=partition,
        key=key,
        value=value,
        tail=record[at + size :],
        answer="set",
        age_ms=max(0, decided_ms - observed_ms),
        repeated=repeated,
    )


def _number_behind(value: bytes, name: bytes) -> int:
    begin = value.index(name) + len(name)
    return int(value[begin : value.index(b",", begin)])


def record_of(out: Out) -> bytes:
    """Encode a record."""
    if isinstance(out, RenderedOut):
        key, value = out.key, out.value
        return b"".join((varint(len(key)), key, varint(len(value)), value, out.tail))
    return rendered(rendered_key(out.key), out.value, rendered_headers(out.headers))
