"""The spool's files: numbered segments of JSON lines, and the few intents that are open.

A line is complete with its newline. Lines cut short by a crash or a full disk are skipped and counted.
Files are not synced: lines outlive the process, but need not outlive the machine, because cgroup limits do not either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

OPEN_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def write_line(fd: int, line: bytes) -> None:
    """Append one line.

    Raises:
        OSError: the write failed, or was partial.

    """
    if os.write(fd, line) != len(line):
        raise OSError("the disk is full: a line was cut short")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically.

    Raises:
        OSError: the old content is kept.

    """
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(content)
    fresh.replace(path)


def whole_lines(content: bytes) -> tuple[list[bytes], int]:
    """Complete lines, and the number of incomplete ones (0 or 1)."""
    *lines, rest = content.split(b"\n")
    return lines, 1 if rest else 0


class Segments:
    """Append-only lines in numbered files. The oldest files are deleted when no longer needed."""

    def __init__(self, folder: Path, bytes_each: int) -> None:
        self._folder = folder
        self._bytes_each = bytes_each
        self._sizes: dict[int, int] = {}
        self._fd: int | None = None
        with suppress(OSError):
            self._sizes = {int(path.stem): path.stat().st_size for path in folder.glob("[0-9]*.jsonl")}
        self._last = max(self._sizes, default=0)
        self.torn = sum(self._ends_torn(number) for number in self._sizes)
        """Incomplete lines and unreadable files found."""

    @property
    def bytes_used(self) -> int:
        """Size of all files."""
        return sum(self._sizes.values())

    @property
    def numbers(self) -> list[int]:
        """Numbers of the files, oldest first."""
        return sorted(self._sizes)

    @property
    def last(self) -> int:
        """Number of the last file."""
        return self._last

    @property
    def in_use(self) -> bool:
        """Whether the last file may get more lines."""
        return self._fd is not None

    @property
    def room(self) -> bool:
        """Whether the next line fits into the last file."""
        return self._fd is not None and self._sizes[self._last] < self._bytes_each

    def begin(self, header: bytes) -> None:
        """Start the next file with this line.

        Raises:
            OSError: it could not be created.

        """
        self.close()
        self._last += 1
        self._fd = os.open(self._path(self._last), OPEN_FLAGS, 0o600)
        self._sizes[self._last] = 0
        try:
            self.append(header)
        except OSError:
            self.drop(self._last)
            raise

    def append(self, line: bytes) -> None:
        """Add a line to the last file.

        Raises:
            OSError: the line is incomplete; the next one needs a new file.

        """
        assert self._fd is not None, "begin a file first"
        try:
            write_line(self._fd, line)
        except OSError:
            self.close()
            raise
        self._sizes[self._last] += len(line)

    def read(self, number: int, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """Complete lines of one file from a byte offset, each with the offset after it."""
        try:
            with self._path(number).open("rb") as file:
                file.seek(offset)
                for line in file:
                    offset += len(line)
                    if line.endswith(b"\n"):
                        yield offset, line
        except OSError:
            self.torn += 1

    def drop(self, number: int) -> None:
        """Delete a finished file. Failed deletions are retried."""
        if number == self._last:
            self.close()
        with suppress(OSError):
            self._path(number).unlink(missing_ok=True)
            del self._sizes[number]

    def close(self) -> None:
        """Close the last file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def _ends_torn(self, number: int) -> bool:
        try:
            with self._path(number).open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:  # empty or unreadable
            return self._sizes[number] > 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.jsonl"
