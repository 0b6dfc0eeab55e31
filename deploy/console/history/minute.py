"""What the recorder hands to the store: a minute of all nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slacktide.deploy.console.history.points import Block
from slacktide.streams.records import Place, Record


@dataclass(frozen=True, slots=True)
class Entry:
    """One record that is kept by itself."""

    record: Record
    names: tuple[str, ...] = ()
    """Pods that it is about, as NAMESPACE/NAME and uid."""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """An object of a compacted topic, as it stood from a time on."""

    topic: str
    key: bytes
    at_ms: int
    record: Record | None
    """None: it is gone."""
    row: bytes | None = None
    """Of a Job: what a list of them shows."""


@dataclass(frozen=True, slots=True)
class Minute:
    """What is to be stored at once."""

    start_s: int
    """UTC epoch, a multiple of 60."""
    blocks: Mapping[str, Block]
    """By node."""
    kept: Mapping[str, list[Record]]
    """By node."""
    entries: list[Entry]
    rates: Mapping[str, int]
    """By topic, how many records came."""
    offsets: Mapping[Place, int]
    """Of each partition that something came of, the next offset; all before it is in this minute or an earlier one."""
    firsts: Mapping[Place, int]
    """And the first that was read since the start."""
    texts: list[str]
    """New ones, in the order of their numbers."""
    versions: Sequence[Version] = ()
    """Oldest first."""
