"""Reads records from Kafka that are not in the history: samples and commands, for 48 hours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.streams.kafka import Picked
from slacktide.streams.records import Place, Record

log = logging.getLogger(__name__)
WAIT_S = 4.0
"""Timeout of a page; then it shows the history only."""


class LogRecords:
    """Reads a node's records by offset, over one connection that is opened on demand; without a cluster none."""

    def __init__(self, bootstrap: Cluster | None) -> None:
        self._picked = None if bootstrap is None else Picked(bootstrap, client_id="slacktide-console-records")
        self._connected = False
        self._turn = asyncio.Lock()

    async def read(self, node: str, at_ms: int, offsets: Mapping[Place, int]) -> Sequence[Record]:
        """Return the records at these offsets that belong to the node and are not later than the moment.

        A recreated topic has other records at these offsets. Empty while Kafka is unavailable. Node "": any.
        """
        if not offsets:
            return ()
        found: Sequence[Record] = ()
        try:
            async with asyncio.timeout(WAIT_S), self._turn:
                found = await self._read(offsets)
        except TimeoutError:
            await self.close()
        return [one for one in found if (not node or one.key == node.encode()) and one.timestamp_ms <= at_ms]

    async def _read(self, offsets: Mapping[Place, int]) -> Sequence[Record]:
        """Read over the existing connection, or a new one."""
        attempts = 0 if self._picked is None else 2 if self._connected else 1
        for _ in range(attempts):
            assert self._picked is not None
            try:
                if not self._connected:
                    await self._picked.connect()
                    self._connected = True
                return await self._picked.read(offsets)
            except LogError as exc:
                log.info("cannot read records from Kafka", extra={"why": str(exc)})
                await self.close()
        return ()

    async def close(self) -> None:
        """Disconnect."""
        self._connected = False
        if self._picked is not None:
            with suppress(LogError):
                await self._picked.close()
