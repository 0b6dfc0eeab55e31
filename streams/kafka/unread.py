"""A record's headers as they lie on the wire, parsed when somebody looks at them: most records' never are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

Headers: TypeAlias = Sequence[tuple[str, bytes]]


class UnreadHeaders(Sequence[tuple[str, bytes]]):
    """A sequence of headers; equal to a tuple of the same."""

    __slots__ = ("_parsed", "_raw")

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._parsed: Headers | None = None

    def _all(self) -> Headers:
        if self._parsed is None:
            self._parsed = headers_in(self._raw)
        return self._parsed

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return iter(self._all())

    @overload
    def __getitem__(self, place: int) -> tuple[str, bytes]: ...

    @overload
    def __getitem__(self, place: slice) -> Headers: ...

    def __getitem__(self, place: int | slice) -> tuple[str, bytes] | Headers:
        return self._all()[place]

    def __eq__(self, other: object) -> bool:
        return tuple(self._all()) == other if isinstance(other, tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._all())


def headers_in(raw: bytes) -> Headers:
    """A record's headers from its bytes, which were checked to be as long as they say.

    Args:
        raw: from the count of headers on.

    Returns:
        The headers; none where a name is no UTF-8.

    """
    found: list[tuple[str, bytes]] = []
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
    """A varint, and where it ends."""
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
