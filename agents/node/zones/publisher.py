"""Publishes the node's NUMA zones: at once when something changes, and every 5 s as a sign of life.

It has a connection of its own. A cluster whose topics lack the zones' one still gets all outcomes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from slacktide.agents.clock import Clock
from slacktide.agents.metrics import AgentMetrics
from slacktide.agents.node.envelopes import of_zones
from slacktide.agents.node.link import Line
from slacktide.agents.node.zones.reading import ZonesReader
from slacktide.agents.node.zones.record import Read, node_zones
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.inventory import ENDED_PHASES, Pod
from slacktide.schemas.topics import ZONES
from slacktide.schemas.zones import NodeZones
from slacktide.streams.kafka import Refused, Sender
from slacktide.streams.records import Out

log = logging.getLogger(__name__)

LOOK_S = 1.0
PUBLISH_S = 5.0
"""Without a change."""
SETTLE_S = 0.1
"""From a change to reading it: the kubelet writes its files container by container, one manager after the other."""
UNLISTED_S = 60.0
"""For so long a holder of resources may be one that the kubelet has just admitted, and that no list has yet."""
WAITING = frozenset({"Pending"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonesFolders:
    """Where the zones are read."""

    sys_folder: Path
    """/sys/devices/system/node."""
    kubelet_folder: Path
    """The kubelet's root directory."""


def counted(read: Read, pods: Iterable[Pod]) -> set[str]:
    """The pods, by uid, that what is available counts.

    A pod that waits may have been listed before the kubelet gave it CPUs. It counts as soon as it holds some. The
    memory manager is the last to give, and the device manager the first. A pod that is not Guaranteed gets devices
    alone.
    """
    cpu, memory, devices = read.managers
    held: Collection[str] = memory.blocks if memory.static else cpu.exclusive if cpu.static else devices.held
    with_devices_alone = {pod.uid for pod in pods if pod.kube_qos != "Guaranteed" and pod.uid in devices.held}
    return {*held, *with_devices_alone} | {pod.uid for pod in pods if pod.phase not in WAITING | ENDED_PHASES}


class ZonesRecords:
    """Which record is due now, by what was published last.

    Args:
        folders: where the zones are read.
        node: its name.
        boot_id: of the agent's start.
        clock: the time.

    """

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
        """Pods, by uid, that were listed last, and ended ones that the kubelet's files still have."""
        self._unlisted_ns: dict[str, int] = {}
        """Since when the kubelet's files have a pod, by uid, that was never listed."""

    def changed(self, pods: Sequence[Pod]) -> bool:
        """Whether the kubelet's files or the pods are others than were read last, or that is 5 s ago.

        The kernel's files bear no time of a change.
        """
        return self._old or self._now(pods) != self._read_from

    def due(self, pods: Sequence[Pod]) -> NodeZones | None:
        """Read all; the record to publish. None: what was published last still holds.

        Args:
            pods: of the node, listed before this is called: a pod that runs then is in the kubelet's files by now.

        """
        old, self._read_from = self._old, self._now(pods)
        read = self._reader.read()
        read = read.without(self._ended(read, pods))
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
        """Pods, by uid, whose share the kubelet takes back when it admits the next pod, and no sooner.

        A holder that was never listed is one that the kubelet has just admitted, or that ended before this agent began.
        """
        if not read.zones:  # nor is known who holds anything
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
        """The last record did not arrive: one is due at the next look."""
        self._last = None

    @property
    def _old(self) -> bool:
        return self._last is None or self._clock.mono_ns() - self._last_ns >= PUBLISH_S * 1e9

    def _now(self, pods: Sequence[Pod]) -> object:
        return self._reader.stamps(), frozenset((pod.uid, pod.phase) for pod in pods)


def _content(record: NodeZones) -> NodeZones:
    return msgspec.structs.replace(record, seq=0, observed_ms=0)


class ZonesPublisher:
    """Sends each record that is due, on a connection that is made anew after any trouble.

    Args:
        records: which are due.
        pods: the node's pods as they were listed last.
        bootstrap: the Kafka cluster.
        sign: adds the node's proof.
        refuse: takes a record that Kafka refuses, with the reason.
        metrics: of the agent.

    """

    def __init__(
        self,
        records: ZonesRecords,
        *,
        node: str,
        pods: Callable[[], Sequence[Pod]],
        bootstrap: Cluster,
        sign: Callable[[Out], Out],
        refuse: Callable[[Out, str], None],
        metrics: AgentMetrics,
    ) -> None:
        self._records = records
        self._pods = pods
        self._sign = sign
        self._refuse = refuse
        self._metrics = metrics
        self._sender = Sender(bootstrap, client_id=f"slacktide-agent-{node}", acks=ZONES.acks)
        self._line = Line("zones")

    async def run(self) -> None:
        """Look each second, until cancelled."""
        while True:
            pods = self._pods()
            # A thread: the kubelet's files may lie on a disk that hangs.
            if await asyncio.to_thread(self._records.changed, pods):
                await asyncio.sleep(SETTLE_S)
                await self._publish(await asyncio.to_thread(self._records.due, pods))
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """Disconnect."""
        await self._sender.close()

    async def _publish(self, record: NodeZones | None) -> None:
        """Of a record that does not arrive a newer one is sent: nobody needs what zones were."""
        if record is None:
            return
        self._metrics.zones_unread([one.what for one in record.missing])
        try:
            if not self._sender.connected:
                await self._sender.connect([ZONES.name])
                self._metrics.connected("zones")
            results = await self._sender.send_each([self._sign(of_zones(record))])
        except LogError as exc:
            self._records.owe()
            await self._line.broke(exc)
            return
        self._line.works()
        for one in results:
            if isinstance(one, Refused):
                self._refuse(one.out, one.why)
