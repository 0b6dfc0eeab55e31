"""PSI triggers: the kernel wakes this process when others stall for lack of CPU, memory or IO."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_MS_MIN, WINDOW_MS_MAX = 500, 10_000
"""Limits that every kernel accepts."""
UNPRIVILEGED = "without CAP_SYS_RESOURCE, the kernel accepts only windows that are a multiple of 2 s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A trigger's threshold: total stall within a window."""

    stall_ms: int = 50
    window_ms: int = 500

    def __str__(self) -> str:
        return f"{self.stall_ms}/{self.window_ms}"

    @classmethod
    def parse(cls, text: str) -> Stall | None:
        """Parse ``on``, ``off`` (None) or ``STALL/WINDOW`` in ms. Raises ValueError if malformed or out of range."""
        if text in {"on", "off"}:
            return cls() if text == "on" else None
        found = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
        if found is None:
            raise ValueError(f"{text!r} is not on, off or STALL/WINDOW in milliseconds, such as {cls()}")
        stall_ms, window_ms = int(found[1]), int(found[2])
        if not WINDOW_MS_MIN <= window_ms <= WINDOW_MS_MAX or not 0 < stall_ms <= window_ms:
            raise ValueError(
                f"{text!r}: accepted: a window of {WINDOW_MS_MIN} to {WINDOW_MS_MAX} ms, and a stall of 1 ms up "
                "to the window"
            )
        return cls(stall_ms=stall_ms, window_ms=window_ms)


def set_trigger(path: str, stall: Stall) -> int:
    """Set a trigger. Poll the descriptor for ``POLLPRI``; closing it removes the trigger. Raises OSError if refused."""
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    if os.fstat(fd).st_size:  # a kernel file has size 0: this is a plain file of a simulated node
        os.close(fd)
        raise OSError(errno.EOPNOTSUPP, "not a file of a kernel", path)
    try:
        os.write(fd, b"some %d %d\0" % (stall.stall_ms * 1000, stall.window_ms * 1000))
    except OSError as error:
        os.close(fd)
        if error.errno == errno.EINVAL:  # the numbers are valid, so EINVAL means missing CAP_SYS_RESOURCE
            raise PermissionError(errno.EPERM, UNPRIVILEGED, path) from error
        raise
    return fd


class Trigger:
    """A trigger on the event loop. Calls ``fired`` at most once per window, and ``gone`` when its cgroup is removed.

    It has its own epoll, because an outer epoll would consume the event. Raises OSError as ``set_trigger``.
    """

    def __init__(self, path: str, stall: Stall, fired: Callable[[], None], gone: Callable[[], None]) -> None:
        self._fired, self._gone = fired, gone
        self._fd = set_trigger(path, stall)
        self._epoll = select.epoll()
        self._epoll.register(self._fd, select.EPOLLPRI)
        asyncio.get_running_loop().add_reader(self._epoll.fileno(), self._ready)

    def close(self) -> None:
        """Remove the trigger."""
        asyncio.get_running_loop().remove_reader(self._epoll.fileno())
        self._epoll.close()
        os.close(self._fd)

    def _ready(self) -> None:
        if any(event & select.EPOLLERR for _, event in self._epoll.poll(0)):
            self._gone()
        else:
            self._fired()
