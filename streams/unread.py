"""A record's encoded headers, which are decoded on access, which is rare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

from slacktide.streams.rendering import headers_in

Headers: TypeAlias = Sequence[tuple[str, bytes]]


class UnreadHeaders(Sequence[tuple[str, bytes]]):
    """A sequence of headers, equal to a tuple of the same."""

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
