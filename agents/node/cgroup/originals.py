"""Stores the quotas that cgroups had before they were cut to fit, in a file that outlives the agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec

from slacktide.agents.node.cgroup.plan import Clipped
from slacktide.schemas.errors import CgroupError

FILE = "cgroup-originals.json"


class Originals:
    """Original quotas for ``plan.plan_v1``, in memory and on disk.

    An unreadable file is renamed to ``.bad`` and reported in ``trouble``. Its cgroups keep their current quota.
    """

    def __init__(self, state_folder: Path) -> None:
        self._file = state_folder / FILE
        self.trouble = ""
        """Why the file was unusable; the reader clears it."""
        self.clipped: dict[PurePosixPath, Clipped] = self._load()

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._file

    def keep(self, clipped: Mapping[PurePosixPath, Clipped]) -> None:
        """Replace the stored quotas. They are on disk when this returns.

        Raises:
            CgroupError: the file could not be written. Then no quota may be cut, since it could not be restored.
        """
        if clipped == self.clipped:
            return
        text = msgspec.json.format(msgspec.json.encode({str(path): known for path, known in clipped.items()}))
        part = self._file.with_suffix(".part")
        try:
            with part.open("wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._file)
        except OSError as error:
            raise CgroupError(str(self._file), f"cannot store the limits to restore: {error.strerror}") from error
        self.clipped = dict(clipped)

    def _load(self) -> dict[PurePosixPath, Clipped]:
        try:
            entries = msgspec.json.decode(self._file.read_bytes(), type=dict[str, Clipped])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.trouble = (
                f"malformed, renamed to {self._file.name}.bad; cgroups with reduced limits keep them: {error}"
            )
            self._set_aside()
            return {}
        return {PurePosixPath(path): known for path, known in entries.items()}

    def _set_aside(self) -> None:
        try:
            self._file.replace(self._file.with_name(f"{self._file.name}.bad"))
        except OSError as error:
            self.trouble += f" ({error.strerror})"
