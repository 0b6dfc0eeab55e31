"""Which writer of policy and inventory a reader follows: one rule for both topics."""

from __future__ import annotations

from typing import Protocol


class Written(Protocol):
    """A record with its writer."""

    @property
    def installation(self) -> str:
        """Id of the policy topic, adopted by each writer; "": a writer of an older release."""

    @property
    def writer_epoch(self) -> int:
        """Term of the writer. Epochs compare within one installation."""


def supersedes(read: Written, held: Written) -> bool:
    """Whether a record that was just read replaces the current one.

    Another installation means a recreated topic, whose epochs may start again. A writer of an older release has none:
    its epoch is compared with the current one.
    """
    if read.installation and read.installation != held.installation:
        return True
    return read.writer_epoch >= held.writer_epoch


class LastWriter:
    """The writer that a reader of many keys follows."""

    def __init__(self) -> None:
        self.installation = ""
        self.writer_epoch = 0

    def take(self, read: Written) -> bool:
        """Follow the writer of a record. False: its epoch is older, so ignore the record."""
        if not supersedes(read, self):
            return False
        self.installation, self.writer_epoch = read.installation or self.installation, read.writer_epoch
        return True
