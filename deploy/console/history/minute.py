"""A recorded minute of all nodes, as it is passed to the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slacktide.deploy.console.history.points import Block
from slacktide.streams.records import Place, Record


@dataclass(frozen=True, slots=True)
class Entry:
    """An individually kept record."""

    record: Record
    names: tuple[str, ...] = ()
    """The record's pods, as NAMESPACE/NAME and uid."""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an object in a compacted topic."""

    topic: str
    key: bytes
    at_ms: int
    record: Record | None
    """None: it was deleted."""
    row: bytes | None = None
    """A Job's row in the list."""


@dataclass(frozen=True, slots=True)
class Minute:
    """Data to store in one transaction."""

    start_s: int
    """UTC epoch, a multiple of 60."""
    blocks: Mapping[str, Block]
    kept: Mapping[str, list[Record]]
    entries: list[Entry]
    rates: Mapping[str, int]
    """The number of records by topic."""
    offsets: Mapping[Place, int]
    """The next offset of each partition with new records. Earlier records are stored with this minute or before."""
    firsts: Mapping[Place, int]
    """The first offset read since the start."""
    texts: list[str]
    """New texts in the order of their numbers."""
    versions: Sequence[Version] = ()
    """Oldest first."""
