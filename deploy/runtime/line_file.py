"""Reads lines of bounded length from files, compressed or not. Errors have the file, and the line if known."""

import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Self

from slacktide.schemas.errors import SlacktideError

LINE_BYTES_MAX = 16 << 20
"""More than Kafka accepts for a record. A compressed file of 1 MiB may have a line of 1 GiB."""


class ExportFileError(SlacktideError):
    """A file cannot be read or written."""


class Lines:
    """The lines of a binary file, in order.

    Reading raises ExportFileError: the file cannot be read, is truncated or damaged, or a line is too long.
    """

    def __init__(self, file: BinaryIO, name: str, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._file, self._name, self._bytes_max = file, name, bytes_max
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        while line := self.readline():
            yield line

    def readline(self) -> bytes:
        """Return the next line with its newline; empty: the file ends."""
        self._number += 1
        try:
            line = self._file.readline(self._bytes_max + 1)
        except (OSError, EOFError, zlib.error) as exc:
            why = getattr(exc, "strerror", None) or exc
            raise ExportFileError(
                f"{self._name}: cannot be unpacked: {why}; the file is truncated or damaged: copy or write it again"
            ) from exc
        if len(line) > self._bytes_max:
            raise ExportFileError(
                f"{self._name}: line {self._number}: is longer than {self._bytes_max >> 20} MiB, which no line of "
                "such a file is"
            )
        return line
