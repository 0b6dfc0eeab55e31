"""Files that are read again and again: opened once and kept, for opening costs more than reading."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

_READ_BYTES = 16_384
_OPEN = os.O_RDONLY | os.O_CLOEXEC


def read_once(path: str) -> bytes:
    """A file that is not read often enough to be kept, by the shortest way; at most 16 KiB.

    Raises:
        OSError: it is not there, or refuses to be read.

    """
    fd = os.open(path, _OPEN)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)


@dataclass(slots=True)
class Room:
    """How many descriptors may be kept; whoever finds none left opens and closes each time."""

    left: int

    @classmethod
    def of_process(cls) -> Room:
        """Half of what this process may open, so that the other half stays for sockets and logs."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(max(64, min(soft, 65_536) // 2))


class KeptFile:
    """One file of a kernel, kept open between reads.

    A group that went and came back under the same name is another file (ENODEV from the old one): it is opened anew.
    Plain files (a virtual node's) are never kept: they may be replaced, and the old one would still read.
    """

    __slots__ = ("_fd", "_path", "_room", "name")

    def __init__(self, path: str, name: str, room: Room) -> None:
        self.name = name
        """What reports call it."""
        self._path = path
        self._room = room
        self._fd = -1

    def read(self) -> bytes:
        """Read it from the beginning, at most 16 KiB.

        Raises:
            OSError: it is not there, or refuses to be read.

        """
        if self._fd >= 0:
            try:
                return os.pread(self._fd, _READ_BYTES, 0)
            except OSError:
                self.close()
        fd = os.open(self._path, _OPEN)
        try:
            text = os.pread(fd, _READ_BYTES, 0)
            # A kernel's own file has size 0, and still has text.
            if text and self._room.left > 0 and os.fstat(fd).st_size == 0:
                self._fd, fd = fd, -1
                self._room.left -= 1
        finally:
            if fd >= 0:
                os.close(fd)
        return text

    def close(self) -> None:
        """Let go of the descriptor, if one is kept."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._room.left += 1
