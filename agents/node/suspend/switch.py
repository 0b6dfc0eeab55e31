"""Whether a node is suspended: by its annotation, by a file in the state folder, or by the policy.

The last annotation from the API server is saved on disk, for a restart while the API server is unreachable.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slacktide.agents.files import write_whole
from slacktide.schemas.policy import Policy

log = logging.getLogger(__name__)

ANNOTATION = "slacktide.io/suspend"
FILE = "suspend"
"""File in the agent's state folder. Creating it suspends the node."""
KEPT = "suspend-annotation"
"""File in the agent's state folder: the last value of the annotation from the API server."""
OFF = "false"
"""The only value of the annotation that does not suspend: a mistyped ``yes`` must not leave limits in force."""
By = Literal["annotation", "file", "policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """What suspends a node."""

    by: By
    reason: str


class Switch:
    """One node's switch. Never raises. If ``watched``, only annotations from the API server count."""

    def __init__(self, folder: Path, *, watched: bool) -> None:
        self._file, self._kept = folder / FILE, folder / KEPT
        self._watched = watched
        self._value = self._read() if watched else None

    def shown(self, annotations: Mapping[str, str]) -> None:
        """Record the node's annotations from the API server."""
        value = annotations.get(ANNOTATION)
        if value == self._value:
            return
        self._value = value
        try:
            if value is None:
                self._kept.unlink(missing_ok=True)
            else:
                write_whole(self._kept, value.encode())
        except OSError as exc:
            log.warning("could not be stored for the next start", extra={"file": str(self._kept), "why": str(exc)})

    def suspended(self, annotations: Mapping[str, str], policy: Policy) -> Suspended | None:
        """Return what suspends the node, or None. ``annotations`` count only if none come from the API server."""
        value = self._value if self._watched else annotations.get(ANNOTATION)
        if value is not None and value != OFF:
            return Suspended(by="annotation", reason=f"the node's annotation {ANNOTATION}: {value[:40]!r}")
        if self._file_exists():
            return Suspended(by="file", reason=f"the file {self._file}")
        if policy.agent.suspend:
            return Suspended(by="policy", reason='"suspend": true in agent-config of the policy')
        return None

    def _file_exists(self) -> bool:
        try:
            return self._file.exists()
        except OSError:
            return False

    def _read(self) -> str | None:
        with suppress(OSError, UnicodeDecodeError):
            return self._kept.read_text()
        return None
