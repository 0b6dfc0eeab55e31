"""Loads the folder of cluster keys, a mounted Secret, at the start and on change."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from slacktide.schemas.proof import CURRENT, PREVIOUS, ClusterKey, ProofKeyError

log = logging.getLogger(__name__)

LOOK_S = 2.0
HELP = (
    "Folder with the cluster keys of node proofs, such as the mounted Secret slacktide-node-proof. The files "
    "current and previous each contain 32 random bytes in base64. Reread when they change."
)


class KeyFolder:
    """The cluster keys in a folder.

    Args:
        folder: with a file ``current``, and optionally ``previous``.
        changed: called with the keys, the current one first, at the start and after each change.
    """

    def __init__(self, folder: Path, changed: Callable[[list[ClusterKey]], None]) -> None:
        self._folder = folder
        self._changed = changed
        self._ring: list[ClusterKey] | None = None
        self.trouble = ""
        """Why there is no key, or not the newest key; "": the newest key is loaded."""

    def look(self) -> None:
        """Read the folder. If a file is invalid, the last valid keys stay in use."""
        try:
            ring = [ClusterKey.of((self._folder / CURRENT).read_text())]
            previous = self._folder / PREVIOUS
            if previous.is_file() and (text := previous.read_text()).strip():
                ring.append(ClusterKey.of(text))
        except (OSError, ProofKeyError) as exc:
            why = f"{self._folder}: {exc}" if isinstance(exc, ProofKeyError) else str(exc)
            if why != self.trouble:
                log.warning("cannot read the cluster keys", extra={"why": why})
            self.trouble = why
            return
        self.trouble = ""
        if ring != self._ring:
            self._ring = ring
            log.info("cluster keys in use", extra={"key_ids": [key.id for key in ring]})
            self._changed(ring)

    async def follow(self) -> None:
        """Read every two seconds until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)


def followed(folder: Path | None, changed: Callable[[list[ClusterKey]], None]) -> KeyFolder | None:
    """Return the folder, loaded once; None: there is none."""
    if folder is None:
        return None
    keys = KeyFolder(folder, changed)
    keys.look()
    return keys
