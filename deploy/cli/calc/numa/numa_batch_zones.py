"""``slacktide calc numa_batch_zones``."""

from __future__ import annotations

from slacktide.deploy.cli.calc.case import Amount, Calculated, Given, GivenResources
from slacktide.schemas.zones import Zone, ZoneId, ZoneResources
from slacktide.streams.decisions.numa.batch_zones import ZoneBatch, batch_zones

FIELDS = (("cpu_milli", "batch_cpu_milli", "milli"), ("mem_bytes", "batch_memory_bytes", "bytes"))


class GivenZone(Given, frozen=True, kw_only=True):
    """A zone in a node's record; the zone does not provide an absent amount."""

    id: ZoneId
    allocatable: GivenResources
    available: GivenResources

    def zone(self) -> Zone:
        """Convert to the rule's type."""
        return Zone(id=self.id, allocatable=_resources(self.allocatable), available=_resources(self.available))


class Input(Given, frozen=True, kw_only=True):
    """A node's batch resources (null: it has none) and its zones."""

    batch_cpu_milli: Amount | None = None
    batch_memory_bytes: Amount | None = None
    zones: list[GivenZone]


def calculate(given: Input) -> Calculated:
    """Divide a node's batch resources among its zones."""
    ids = [one.id for one in given.zones]
    parts = batch_zones(given.batch_cpu_milli, given.batch_memory_bytes, [one.zone() for one in given.zones])
    shares = [
        (zone, name, unit, share)
        for zone, part in zip(ids, parts, strict=True)
        for field, name, unit in FIELDS
        if (share := getattr(part, field)) is not None
    ]
    return Calculated(
        output={"zones": [{"id": zone} | _written(part) for zone, part in zip(ids, parts, strict=True)]},
        because=[share.because(f"zones/{zone}/{name}", unit) for zone, name, unit, share in shares],
    )


def _written(part: ZoneBatch) -> dict[str, int]:
    return {name: share.amount for field, name, _ in FIELDS if (share := getattr(part, field)) is not None}


def _resources(given: GivenResources) -> ZoneResources:
    return ZoneResources(cpu_milli=given.cpu_milli, mem_bytes=given.mem_bytes)
