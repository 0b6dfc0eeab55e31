"""Batch resources of each flavor's nodes, folded from node records. Pure."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import DRY_RUN, LABEL_AGENT, LastWriter, NodeInventory
from slacktide.schemas.queue import NodeSize, OfferedObject, OfferedSpec
from slacktide.schemas.queue_objects import Metadata, QueueObject, ResourceFlavorObject
from slacktide.schemas.topics import ALLOCATABLE, INVENTORY
from slacktide.streams.decisions.coverage import NodeTable
from slacktide.streams.decisions.queue.cluster_objects import offered_flavors
from slacktide.streams.decisions.queue.flavor_match import Damped, damped
from slacktide.streams.records import Record, text_of

WRITE_MS = 60_000
"""Minimum interval between two updates of a flavor."""
SIZES_MS = 300_000
"""Minimum interval if only single nodes changed."""


class _Figures(NamedTuple):
    cpu: Damped
    memory: Damped


class FlavorOffers:
    """Nodes, and the damped batch allocatable of each flavor."""

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str] | None] = {}
        """None: it is cordoned, or its batch resources are not Slacktide's."""
        self._writer = LastWriter()
        self._published = NodeTable(NodeAllocatable)
        self._figures: dict[str, _Figures] = {}
        self._written_ms: dict[str, int] = {}

    def receive(self, records: Iterable[Record]) -> None:
        """Read node records; an invalid one leaves the last valid one in force."""
        for record in records:
            with suppress(BadMessageError):
                if record.topic == ALLOCATABLE.name:
                    self._published.read(record, record.timestamp_ms / 1_000)
                elif record.topic == INVENTORY.name and record.value is None:
                    self._labels.pop(text_of(record.key or b""), None)
                    self._published.forget(text_of(record.key or b""))
                elif record.topic == INVENTORY.name and self._writer.take(its := decode(record.value, NodeInventory)):
                    apart = its.facts.unschedulable or its.facts.labels.get(LABEL_AGENT) == DRY_RUN
                    self._labels[its.node] = None if apart else its.facts.labels

    def due(self, objects: Iterable[QueueObject], now_ms: int) -> list[OfferedObject]:
        """Return the amounts to write now. ``objects`` includes flavors with shared quotas and their last amounts."""
        objects = list(objects)
        labels = {one.metadata.name: one.spec.node_labels for one in objects if isinstance(one, ResourceFlavorObject)}
        known = {one.metadata.name: one.spec for one in objects if isinstance(one, OfferedObject)}
        return [
            one
            for flavor in sorted(offered_flavors(objects))
            if (one := self._due(flavor, labels.get(flavor) or {}, known.get(flavor), now_ms)) is not None
        ]

    def _due(
        self, flavor: str, labels: Mapping[str, str], known: OfferedSpec | None, now_ms: int
    ) -> OfferedObject | None:
        own = {name: self._labels.get(name, {}) for name in sorted(self._published.latest)}
        has = [name for name, its in own.items() if its is not None and labels.items() <= its.items()]
        nodes = [size for name in has if (size := _size(self._published.latest[name].message)) is not None]
        cpu, memory = sum(one.cpu_milli for one in nodes), sum(one.memory_bytes for one in nodes)
        before = self._figures.get(flavor)
        if before is None:
            first = OfferedSpec(cpu_milli=cpu, memory_bytes=memory) if known is None else known
            before = _Figures(Damped(first.cpu_milli, now_ms), Damped(first.memory_bytes, now_ms))
        figures = _Figures(damped(before.cpu, cpu, now_ms), damped(before.memory, memory, now_ms))
        self._figures[flavor] = figures
        since_ms = now_ms - self._written_ms.get(flavor, 0)
        spec = OfferedSpec(cpu_milli=figures.cpu.amount, memory_bytes=figures.memory.amount, nodes=nodes)
        same = known is not None and (known.cpu_milli, known.memory_bytes) == (spec.cpu_milli, spec.memory_bytes)
        if known == spec or since_ms < (SIZES_MS if same else WRITE_MS):
            return None
        self._written_ms[flavor] = now_ms
        return OfferedObject(metadata=Metadata(name=flavor), spec=spec)


def _size(one: NodeAllocatable) -> NodeSize | None:
    """Return what a node offers; None: it was withdrawn."""
    if one.batch_cpu_milli is None or one.batch_mem_bytes is None:
        return None
    return NodeSize(cpu_milli=one.batch_cpu_milli, memory_bytes=one.batch_mem_bytes)
