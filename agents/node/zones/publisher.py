"""Publishes the node's NUMA zones, on a connection of its own: on every change, and every 5 s as a sign of life."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from slacktide.agents.clock import Clock
from slacktide.agents.node.link import Channel
from slacktide.agents.node.metrics import AgentMetrics
from slacktide.agents.node.outbox import of_zones
from slacktide.agents.node.zones.reading import ZONE_SOURCES, ZonesReader
from slacktide.agents.node.zones.record import Read, node_zones
from slacktide.schemas.errors import LogError
from slacktide.schemas.inventory import ENDED_PHASES, Pod
from slacktide.schemas.zones import NodeZones

LOOK_S = 1.0
PUBLISH_S = 5.0
SETTLE_S = 0.1
"""Delay from a change to reading it, since the kubelet writes its files one by one."""
UNLISTED_S = 60.0
"""For this long an unlisted holder of resources may be a pod that the kubelet has just admitted."""
WAITING = frozenset({"Pending"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonesFolders:
    """Where zones are read."""

    sys_folder: Path
    kubelet_folder: Path


def counted(read: Read, pods: Iterable[Pod]) -> set[str]:
    """Return the uids of the pods that ``available`` takes into account.

    A pending pod counts once it holds CPUs, since it may be listed before the kubelet assigns them. The device manager
    assigns first, the memory manager last. Pods that are not Guaranteed get only devices.
    """
    cpu, memory, devices = read.managers
    held: Collection[str] = memory.blocks if memory.static else cpu.exclusive if cpu.static else devices.held
    with_devices_alone = {pod.uid for pod in pods if pod.kube_qos != "Guaranteed" and pod.uid in devices.held}
    return {*held, *with_devices_alone} | {pod.uid for pod in pods if pod.phase not in WAITING | ENDED_PHASES}


class ZonesRecords:
    """Decides which record is due."""

    def __init__(self, folders: ZonesFolders, *, node: str, boot_id: str, clock: Clock) -> None:
        self._reader = ZonesReader(folders.sys_folder, folders.kubelet_folder)
        self._node = node
        self._boot_id = boot_id
        self._clock = clock
        self._seq = 0
        self._last: NodeZones | None = None
        self._last_ns = 0
        self._read_from: object = None
        self._listed: set[str] = set()
        """Uids of pods listed last, and of ended pods in the kubelet's files."""
        self._unlisted_ns: dict[str, int] = {}
        """When a never listed pod, by uid, first appeared in the kubelet's files."""

    def changed(self, pods: Sequence[Pod]) -> bool:
        """Return whether the kubelet's files or the pods have changed, or the last reading is 5 s ago.

        Kernel files have no modification time.
        """
        return self._old or self._now(pods) != self._read_from

    def due(self, pods: Sequence[Pod]) -> NodeZones | None:
        """Read everything. Return the record to publish; None: the last is valid. ``pods``: listed before this call."""
        old, self._read_from = self._old, self._now(pods)
        read = self._reader.read()
        read = read.without(self._ended(read, pods)).with_pods(pods)
        record = node_zones(
            read,
            counted(read, pods),
            node=self._node,
            boot_id=self._boot_id,
            seq=self._seq + 1,
            observed_ms=self._clock.wall_ms(),
        )
        if not old and self._last is not None and _content(record) == _content(self._last):
            return None
        self._seq, self._last, self._last_ns = record.seq, record, self._clock.mono_ns()
        return record

    def _ended(self, read: Read, pods: Sequence[Pod]) -> set[str]:
        """Return the uids of pods whose resources the kubelet releases only when it admits the next pod.

        A never listed holder was just admitted, or ended before this agent started.
        """
        if not read.zones:  # holders are unknown, too
            return set()
        listed = {pod.uid for pod in pods}
        living = {pod.uid for pod in pods if pod.phase not in ENDED_PHASES}
        now_ns = self._clock.mono_ns()
        unlisted = read.holders - self._listed - listed if listed else ()
        self._unlisted_ns = {uid: self._unlisted_ns.get(uid, now_ns) for uid in unlisted}
        late = {uid for uid, since_ns in self._unlisted_ns.items() if now_ns - since_ns >= UNLISTED_S * 1e9}
        ended = read.holders & (self._listed | listed | late) - living
        self._listed = listed | ended
        return ended

    def owe(self) -> None:
        """Publish again, since the last record did not arrive."""
        self._last = None

    @property
    def _old(self) -> bool:
        return self._last is None or self._clock.mono_ns() - self._last_ns >= PUBLISH_S * 1e9

    def _now(self, pods: Sequence[Pod]) -> object:
        return self._reader.stamps(), frozenset((pod.uid, pod.phase, pod.cpuset) for pod in pods)


def _content(record: NodeZones) -> NodeZones:
    return msgspec.structs.replace(record, seq=0, observed_ms=0)


class ZonesPublisher:
    """Publishes each record that is due, and reconnects after errors."""

    def __init__(
        self, records: ZonesRecords, channel: Channel, *, pods: Callable[[], Sequence[Pod]], metrics: AgentMetrics
    ) -> None:
        self._records, self._channel = records, channel
        self._pods = pods
        self._metrics = metrics

    async def run(self) -> None:
        """Check for changes until cancelled."""
        while True:
            pods = self._pods()
            # In a thread: the disk with the kubelet's files may hang.
            if await asyncio.to_thread(self._records.changed, pods):
                await asyncio.sleep(SETTLE_S)
                await self._publish(await asyncio.to_thread(self._records.due, pods))
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """Disconnect."""
        await self._channel.close()

    async def _publish(self, record: NodeZones | None) -> None:
        """Publish a record. After a failure a newer one is sent instead."""
        if record is None:
            return
        unread = {one.what for one in record.missing}
        self._metrics.zones_unread({what: what in unread for what in ZONE_SOURCES})
        try:
            await self._channel.send(of_zones(record))
        except LogError as exc:
            self._records.owe()
            await self._channel.broke(exc)
