"""Reloads the file of a shadow policy while the worker runs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from slacktide.agents.files import Watched
from slacktide.schemas import policy as policies
from slacktide.schemas.policy import Parsed
from slacktide.streams.worker.answering import Shadow

log = logging.getLogger(__name__)

LOOK_S = 1.0


class ShadowFile:
    """A policy file, and the shadow that decides by its last valid content.

    Raises:
        ConfigError: the file is missing or invalid.
    """

    def __init__(self, path: Path, worker_name: str) -> None:
        self._file: Watched[Parsed] = Watched(path, policies.parse)
        self.shadow = Shadow(worker_name, self._file.value.policy)

    async def follow(self) -> None:
        """Check each second for changes; an invalid change is logged, and the last valid policy stays."""
        self._report()
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._file.poll():
                continue
            if self._file.refused:
                log.warning("%s", self._file.refused)
            if self._file.value.policy.version != self.shadow.policy.version:
                self.shadow.policy = self._file.value.policy
                self._report()

    def _report(self) -> None:
        log.info(
            "shadow policy in force", extra={"policy": str(self._file.path), "version": self.shadow.policy.version}
        )
