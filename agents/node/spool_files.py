"""The spool's files: numbered segments of JSON lines, and the few intents that are open.

A line counts when its newline is there. What a crash or a full disk cut short is skipped and counted.
Nothing is flushed to the platter: lines outlive the process, which is what acts need; the limits they
speak of do not outlive the machine either.
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
        OSError: also where only a part of it was written.

    """
    if os.write(fd, line) != len(line):
        raise OSError("the disk is full: a line was cut short")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file's content at once: a reader sees the old or the new, never a part.

    Raises:
        OSError: the old content stays.

    """
    fresh = path.with_name(path.name + ".new")
    fresh.write_bytes(content)
    fresh.replace(path)


def whole_lines(content: bytes) -> tuple[list[bytes], int]:
    """The lines that are there to their newline, and how many are not (0 or 1)."""
    *lines, rest = content.split(b"\n")
    return lines, 1 if rest else 0


class Segments:
    """Append-only lines over numbered files; the oldest files are deleted when nobody needs them."""

    def __init__(self, folder: Path, bytes_each: int) -> None:
        self._folder = folder
        self._bytes_each = bytes_each
        self._sizes: dict[int, int] = {}
        self._fd: int | None = None
        with suppress(OSError):
            self._sizes = {int(path.stem): path.stat().st_size for path in folder.glob("[0-9]*.jsonl")}
        self._last = max(self._sizes, default=0)
        self.torn = sum(self._ends_torn(number) for number in self._sizes)
        """Lines found cut short, and files found unreadable."""

    @property
    def bytes_used(self) -> int:
        """Size of all files."""
        return sum(self._sizes.values())

    @property
    def numbers(self) -> list[int]:
        """The files there are, oldest first."""
        return sorted(self._sizes)

    @property
    def last(self) -> int:
        """The file that was written to last."""
        return self._last

    @property
    def in_use(self) -> bool:
        """Whether the last file may get more lines."""
        return self._fd is not None

    @property
    def room(self) -> bool:
        """Whether the next line goes into the file that was written to last."""
        return self._fd is not None and self._sizes[self._last] < self._bytes_each

    def begin(self, header: bytes) -> None:
        """Start the next file with this line.

        Raises:
            OSError: it could not be made.

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
            OSError: it is not there as a whole; the next line needs a new file.

        """
        assert self._fd is not None, "begin a file first"
        try:
            write_line(self._fd, line)
        except OSError:
            self.close()
            raise
        self._sizes[self._last] += len(line)

    def read(self, number: int, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """Whole lines of one file from a byte offset, each with the offset behind it."""
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
        """Delete a file that is not written to any more; one that cannot be deleted is tried again."""
        if number == self._last:
            self.close()
        with suppress(OSError):
            self._path(number).unlink(missing_ok=True)
            del self._sizes[number]

    def close(self) -> None:
        """Write no more to the last file."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)

    def _ends_torn(self, number: int) -> bool:
        try:
            with self._path(number).open("rb") as file:
                file.seek(-1, os.SEEK_END)
                return file.read(1) != b"\n"
        except OSError:  # empty, or not to be read
            return self._sizes[number] > 0

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.jsonl"
