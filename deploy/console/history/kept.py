"""Encodes records of one node and minute. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slacktide.streams.records import Record


class Kept(msgspec.Struct, array_like=True):
    """Records of one node and minute, and by topic the minute of the previous kept record."""

    before: Mapping[str, int]
    records: Sequence[Record]


def pack_kept(before: Mapping[str, int], records: Sequence[Record]) -> bytes:
    """Encode; only the trace header is kept."""
    slim = [msgspec.structs.replace(one, headers=_traced(one)) for one in records]
    return zlib.compress(msgspec.msgpack.encode(Kept(before, slim)), 6)


def unpack_kept(blob: bytes) -> Kept:
    """Decode."""
    return msgspec.msgpack.decode(zlib.decompress(blob), type=Kept)


def _traced(record: Record) -> Iterable[tuple[str, bytes]]:
    return tuple((name, value) for name, value in record.headers if name == "traceparent")
