"""Writes NodeResourceTopology objects, if the cluster has that kind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from slacktide.agents.clock import Clock
from slacktide.agents.cluster.bridge import metrics
from slacktide.agents.cluster.bridge.topology import MANAGED_BY, MANAGER, ShownNode, Topologies, TopologyWrite, created
from slacktide.agents.kubernetes import NODE_RESOURCE_TOPOLOGIES, ApiAwayError, ApiError, ApiRefusedError, ApiServer
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import NodeZones
from slacktide.streams.kafka import Following, TailReader
from slacktide.streams.records import Record

log = logging.getLogger(__name__)

ROUND_S = 1.0
LOOK_S = 60.0
"""Interval for checking whether the cluster has the kind."""
BACK_MS = 6_000
"""How far to read back: agents publish every 5 s."""
NOT_FOUND = 404


class TopologyMirror:
    """The only writer of its own objects. ``to_dead_letter`` receives invalid records, each with the reason."""

    def __init__(
        self,
        cluster: Cluster,
        nodes: Callable[[], Mapping[str, ShownNode]],
        to_dead_letter: Callable[[Record, str], None],
        clock: Clock,
    ) -> None:
        self._failed: dict[str, str] = {}
        """Why the last write failed, by node."""
        self._topologies = Topologies()
        self._reader = TailReader(
            cluster, (ZONES.name,), client_id="slacktide-bridge-zones", back_ms=BACK_MS, now_ms=clock.wall_ms
        )
        self._following = Following(self._reader, away="zones are not written", clock=clock)
        self._nodes = nodes
        self._to_dead_letter = to_dead_letter
        self._clock = clock

    @property
    def trouble(self) -> str:
        """Why a node's last write failed, for the first such node; "": all succeeded."""
        nodes = self._nodes()
        return next((why for node, why in self._failed.items() if node in nodes), "")

    async def run(self, api: ApiServer) -> None:
        """Run until cancelled. Zones are read only while the cluster has the kind."""
        while True:
            if await self._is_installed(api):
                log.info("the cluster serves NodeResourceTopology: writing zones")
                reading = asyncio.create_task(self._following.run(lambda: None, self._read))
                try:
                    await self._write_all(api)
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
            await asyncio.sleep(LOOK_S)

    async def _is_installed(self, api: ApiServer) -> bool:
        try:
            return f'"{NODE_RESOURCE_TOPOLOGIES.plural}"' in await api.text(NODE_RESOURCE_TOPOLOGIES.group_path)
        except ApiError:
            return False

    async def _write_all(self, api: ApiServer) -> None:
        """Write due objects each second until the kind is deleted."""
        looked_s = self._now_s
        while True:
            for write in self._topologies.due(self._nodes(), self._now_s):
                await self._write(api, write)
            await asyncio.sleep(ROUND_S)
            if self._now_s >= looked_s + LOOK_S:
                looked_s = self._now_s
                if not await self._is_installed(api):
                    return

    async def _write(self, api: ApiServer, write: TopologyWrite) -> None:
        try:
            if write.first:
                await self._take(api, write)
            else:
                await api.patch(NODE_RESOURCE_TOPOLOGIES, write.node, write.body, dict)
        except ApiError as exc:
            self._topologies.wrote(write, self._now_s, done=False)
            metrics.WRITES.labels("topology", "away" if isinstance(exc, ApiAwayError) else "refused").inc()
            if write.node not in self._failed:
                log.warning("cannot write zones", extra={"node": write.node, "why": str(exc)})
            self._failed[write.node] = str(exc)
            return
        self._topologies.wrote(write, self._now_s, done=True)
        metrics.WRITES.labels("topology", "done").inc()
        self._failed.pop(write.node, None)

    async def _take(self, api: ApiServer, write: TopologyWrite) -> None:
        """Create the object, or continue one of an earlier leader; another exporter's object is left alone."""
        kind = NODE_RESOURCE_TOPOLOGIES
        try:
            there = await api.get(kind, write.node, dict[str, Any])
        except ApiRefusedError as exc:
            if exc.status != NOT_FOUND:
                raise
            await api.create(kind, created(write.node, write.uid, write.body), dict)
            return
        if ((there.get("metadata") or {}).get("labels") or {}).get(MANAGED_BY) != MANAGER:
            raise ForeignTopologyError(
                f"NodeResourceTopology {write.node} belongs to another exporter, because it has no label "
                f"{MANAGED_BY}={MANAGER}. Either keep that exporter, or stop it and delete the object"
            )
        await api.patch(kind, write.node, write.body, dict)

    async def _read(self, records: list[Record], now_s: float) -> None:
        for record in records:
            node = (record.key or b"").decode(errors="replace")
            if record.value is None:
                self._topologies.forget(node)
                continue
            try:
                zones = decode(record.value, NodeZones)
                if zones.node != node:
                    raise BadMessageError("NodeZones", f"the record's key is {node!r}, its node {zones.node!r}")  # noqa: TRY301
                self._topologies.take(zones, now_s)
            except Exception as exc:  # noqa: BLE001 - one record stops nothing
                self._to_dead_letter(record, failure("publish to Kubernetes", exc))

    @property
    def _now_s(self) -> float:
        return self._clock.mono_ns() / 1e9


class ForeignTopologyError(ApiError):
    """The object belongs to another exporter."""
