"""Keeps unchanged figures of nodes fresh. Topics of metric, allocatable and score, once a second in each partition.

A heartbeat is a record with the key ``#heartbeat`` and no value. Its body is the JSON in the header
``heartbeat``. Kubernetes allows no ``#`` in a node's name. Workers refuse nodes whose names begin with it.

The value is null for readers that do not know heartbeats: they take it for the removal of an unknown node, which
changes nothing. They would turn any other value into a dead letter.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta

from slacktide.schemas.bounds import Count, Name, TimeMs
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message

KIND = "slacktide.heartbeat.v1"
"""The event's type, and the schema's name."""
RESERVED = "#"
"""No node's name begins with it."""
KEY = f"{RESERVED}heartbeat"
HEADER = "heartbeat"
BEAT_NODES_MAX = 2_000
"""Most nodes in one record, to stay below the broker's 1 MiB. A larger partition has ``#heartbeat-1`` and more."""
_KEY = KEY.encode()
Covered: TypeAlias = Annotated[list[Name], Meta(max_length=BEAT_NODES_MAX)]


class Heartbeat(Message, frozen=True, kw_only=True):
    """The owner of a partition is alive, and its latest figures of these nodes in this topic are still valid."""

    worker: Name
    """The owner's name."""
    epoch: Count
    """Generation of the workers' consumer group in which it owns the partition. The highest one counts."""
    ticked_ms: TimeMs
    """The worker's monotonic time, for the distance between heartbeats."""
    nodes: Covered = []
    """Names. The owner has published each since its takeover, and has read a sample of it within seconds or marked it
    stale."""


def is_heartbeat(key: bytes | None) -> bool:
    """Whether a record of a latest-state topic is a heartbeat."""
    return key is not None and key.startswith(_KEY)


def heartbeat_of(headers: Iterable[tuple[str, bytes]]) -> Heartbeat:
    """Read a heartbeat. Raises BadMessageError if the header is absent, or a field is refused."""
    for name, value in headers:
        if name == HEADER:
            return decode(value, Heartbeat)
    raise BadMessageError(Heartbeat.__name__, f"the record has no header {HEADER}")


def parts(nodes: Sequence[str]) -> list[tuple[bytes, Sequence[str]]]:
    """Distribute nodes over records: key and nodes of each. Without nodes there is one record."""
    found = []
    for number, begin in enumerate(range(0, max(1, len(nodes)), BEAT_NODES_MAX)):
        key = KEY if not number else f"{KEY}-{number}"
        found.append((key.encode(), nodes[begin : begin + BEAT_NODES_MAX]))
    return found
