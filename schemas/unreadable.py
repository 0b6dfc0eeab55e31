"""A batch of records that cannot be read: what stands in its place."""

from __future__ import annotations

from typing import Self


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
