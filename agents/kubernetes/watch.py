"""Decodes the lines of a watch."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import msgspec

from slacktide.agents.kubernetes.errors import Status, refused

T = TypeVar("T")
LINE_BYTES_MAX = 16 * 1024 * 1024
"""Objects have at most 1.5 MiB in etcd, and more in JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Generic[T]):
    """A change of one object. A bookmark has no object, only the resource version reached."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    resource_version: str
    name: str = ""
    namespace: str = ""


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Object(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Metadata = _Metadata()


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


_line = msgspec.json.Decoder(_Line)
_object = msgspec.json.Decoder(_Object)


def read_line(text: bytes, where: str, decoder: msgspec.json.Decoder[T]) -> Event[T]:
    """Decode one line.

    Raises:
        ApiRefusedError: the server ends the watch; status 410 if the resource version is too old.
        msgspec.DecodeError: malformed.
    """
    line = _line.decode(text)
    if line.type == "ERROR":
        raise refused(where, msgspec.json.decode(line.object, type=Status).code, bytes(line.object))
    metadata = _object.decode(line.object).metadata
    return Event(
        type=line.type,
        object=None if line.type == "BOOKMARK" else decoder.decode(line.object),
        resource_version=metadata.resource_version,
        name=metadata.name,
        namespace=metadata.namespace,
    )


async def lines(chunks: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Split a body into lines. An incomplete last line is dropped.

    Raises:
        ValueError: a line longer than 16 MiB.
    """
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        *whole, tail = rest.split(b"\n")
        rest = bytearray(tail)
        for line in whole:
            yield bytes(line)
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError("a line of a watch is larger than 16 MiB")
