"""Files that are read often and kept open, since opening costs more than reading."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

_READ_BYTES = 16_384
_OPEN = os.O_RDONLY | os.O_CLOEXEC


def read_once(path: str) -> bytes:
    """Read a file once, at most 16 KiB, with few system calls. Raises OSError if it is missing or unreadable."""
    fd = os.open(path, _OPEN)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)


@dataclass(slots=True)
class Room:
    """Limits the descriptors kept open. Beyond it, files are opened for each reading."""

    left: int

    @classmethod
    def of_process(cls) -> Room:
        """Return half of this process' descriptor limit. The other half is for sockets and logs."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(max(64, min(soft, 65_536) // 2))


class KeptFile:
    """A kernel file, kept open between reads.

    A recreated cgroup has a new file (the old descriptor gives ENODEV), which is opened again. Plain files of simulated
    nodes are not kept open, since they may be replaced.
    """

    __slots__ = ("_fd", "_path", "_room", "name")

    def __init__(self, path: str, name: str, room: Room) -> None:
        self.name = name
        self._path = path
        self._room = room
        self._fd = -1

    def read(self) -> bytes:
        """Read the file, at most 16 KiB. Raises OSError if it is missing or unreadable."""
        if self._fd >= 0:
            try:
                return os.pread(self._fd, _READ_BYTES, 0)
            except OSError:
                self.close()
        fd = os.open(self._path, _OPEN)
        try:
            text = os.pread(fd, _READ_BYTES, 0)
            # A kernel file has size 0 although it has content.
            if text and self._room.left > 0 and os.fstat(fd).st_size == 0:
                self._fd, fd = fd, -1
                self._room.left -= 1
        finally:
            if fd >= 0:
                os.close(fd)
        return text

    def close(self) -> None:
        """Close the descriptor, if it is open."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._room.left += 1
