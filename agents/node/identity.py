"""The boot id of an agent, higher than all before it, from a state folder that one agent locks."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from slacktide.agents.files import write_whole
from slacktide.schemas.errors import SlacktideError

_COUNTER = re.compile(r"[0-9]{1,12}\n?")


class Identity:
    """A boot id, and the folder's lock for the life of the process."""

    def __init__(self, folder: Path, *, start_ms: int) -> None:
        """Lock the folder, which is created if absent, and count this start.

        If the counter is lost, the start time in seconds replaces it. That is above any count, so later ids are higher.

        Raises:
            SlacktideError: another agent uses the folder, or it is unusable.
        """
        self._lock: int | None = _locked(folder)
        file = folder / "starts"
        last = _counted(file)
        count = start_ms // 1000 if last is None else last + 1
        try:
            write_whole(file, f"{count}\n".encode())
        except OSError as exc:
            self.release()
            raise SlacktideError(
                f"{file}: cannot write the start counter: {exc.strerror}; give the agent a writable folder with "
                "--state-folder"
            ) from exc
        self.boot_id = f"{count:012d}-{os.urandom(4).hex()}"

    def release(self) -> None:
        """Unlock the folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise SlacktideError(
            f"{folder}: not usable as state folder: {exc.strerror}; give another with --state-folder"
        ) from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        os.close(lock)
        raise SlacktideError(
            f"{folder}: another agent uses this state folder; stop it, or give this agent its own with --state-folder"
        ) from exc
    return lock


def _counted(file: Path) -> int | None:
    """Return the starts so far; None: unknown."""
    try:
        text = file.read_bytes()[:32].decode("ascii", errors="replace")
    except OSError:
        return None
    return int(text) if _COUNTER.fullmatch(text) else None
