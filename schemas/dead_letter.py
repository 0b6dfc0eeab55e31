"""A record or batch that could not be processed. Topic slacktide.dead-letter.v1, key: the bad record's key."""

from typing import Self

from slacktide.schemas.bounds import Count, TimeMs
from slacktide.schemas.message import Message

VALUE_BYTES_MAX = 256 * 1024


class DeadLetter(Message, frozen=True, kw_only=True):
    """Where it came from, why it was refused, and the record itself."""

    topic: str
    partition: Count
    offset: Count
    """Of the record; of an unreadable batch the first."""
    reason: str
    reader: str
    """The part that refused it."""
    refused_ms: TimeMs
    key: str | None = None
    """As text. The bytes are this record's own key, where they are not too many."""
    headers: dict[str, str] = {}
    value_base64: str | None = None
    """At most 256 KiB of the value; None: the value was null."""
    value_bytes: Count = 0
    """Size of the whole value."""
    last_offset: Count | None = None
    """The last offset of a batch that cannot be read, of which nothing is repeated here; None: this is one record."""


class UnreadableBatch(bytes):
    """The value of the one record that stands for an unreadable batch: no bytes, and the reason.

    The record's offset is the batch's last one, so a reader that commits it continues behind the batch. No message
    decodes from this value: each reader refuses the record like any bad one, and writes a dead letter for it.
    """

    first_offset: int
    reason: str

    def __new__(cls, first_offset: int, reason: str) -> Self:
        """Make one.

        Args:
            first_offset: of the batch, or the first that was still to be read of it.
            reason: why it cannot be read.
        """
        made = super().__new__(cls)
        made.first_offset = first_offset
        made.reason = reason
        return made
