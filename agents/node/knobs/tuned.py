"""Which knobs this agent has set, also in earlier runs. Only these are restored."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from slacktide.agents.files import write_whole
from slacktide.schemas.knob import KnobKey

log = logging.getLogger(__name__)
FILE = "knobs.json"


class Tuned:
    """The set knobs, in memory and, given a folder, on disk before one is set. Never raises.

    If the disk refuses, an agent does not restore knobs from before its restart.
    """

    def __init__(self, state_folder: Path | None = None) -> None:
        self._file = None if state_folder is None else state_folder / FILE
        self.keys: set[KnobKey] = self._load()

    def add(self, keys: Iterable[KnobKey]) -> None:
        """Record knobs that are about to be set."""
        self._keep(self.keys | set(keys))

    def drop(self, keys: Iterable[KnobKey]) -> None:
        """Remove knobs that are restored, or whose cgroups are gone."""
        self._keep(self.keys - set(keys))

    def _keep(self, keys: set[KnobKey]) -> None:
        if keys == self.keys:
            return
        self.keys = keys
        if self._file is None:
            return
        try:
            write_whole(self._file, msgspec.json.encode(sorted(keys)))
        except OSError as exc:
            log.warning("could not be stored for the next start", extra={"file": str(self._file), "why": str(exc)})

    def _load(self) -> set[KnobKey]:
        if self._file is None:
            return set()
        try:
            return set(msgspec.json.decode(self._file.read_bytes(), type=list[KnobKey]))
        except FileNotFoundError:
            return set()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as exc:
            log.warning("the stored state is lost", extra={"file": str(self._file), "why": str(exc)})
            return set()
