"""A pod's explanation for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.deploy.cli.explain.findings import age, findings_text
from slacktide.deploy.cli.explain.placement_text import placement_text
from slacktide.deploy.cli.text import count, instant, table
from slacktide.schemas.inventory import Resources
from slacktide.streams.explain.evictions import Eviction
from slacktide.streams.explain.placement import NodeRoom, Room
from slacktide.streams.explain.pod import PodExplanation
from slacktide.streams.explain.selling import amount, resource_name

NODES_TOLD = 20
EVICTIONS_TOLD = 20


def pod_text(told: PodExplanation) -> str:
    """All of it."""
    parts = ["\n".join(_head(told)), findings_text(told.findings)]
    if told.rooms:
        parts.append(_rooms(told.rooms))
    if told.placement is not None:
        parts.append(placement_text(told.placement, told.asked_ms))
    if told.evictions:
        parts.append(_evictions(told.evictions))
    return "\n\n".join(parts)


def _head(told: PodExplanation) -> Iterator[str]:
    placed = told.placement is not None and told.placement.body.passed
    nowhere = "on no node with figures" if placed else "on no node"
    where = f"on node {told.node}" if told.node else nowhere
    of_class = f", {told.qos}, {told.priority_class}" if told.qos else ""
    yield f"pod {told.namespace}/{told.name}, {where}{of_class}"
    if told.requests is not None and told.limits is not None:
        place = "" if told.pod_place is None else f" ({told.pod_place})"
        yield f"  requests {_resources(told.requests)}; limits {_resources(told.limits)}{place}"
    run = told.running
    if run is not None:
        cpu, mem = amount(run.use.cpu_milli, "cpu_milli"), amount(run.use.mem_bytes, "mem_bytes")
        covered = f"{run.covered_ms / 1000:.0f} of {run.window_ms / 1000:.0f} s"
        yield f"  uses {cpu}, {mem} on average over {covered}, {age(run.age_ms)} ({run.place})"


def _resources(amounts: Resources) -> str:
    asked = [(field, getattr(amounts, field)) for field in amounts.__struct_fields__]
    return ", ".join(f"{resource_name(field)} {amount(value, field)}" for field, value in asked if value) or "nothing"


def _rooms(rooms: Sequence[NodeRoom]) -> str:
    """Nearest first: those that it fits on, then those that its selector picks."""
    ranked = sorted(rooms, key=lambda one: (not one.fits, not one.selected, one.node))
    head = ["NODE", *(f"{resource_name(room.of).upper()} LEFT/SOLD" for room in rooms[0].rooms), "FITS", "WHY NOT"]
    rows = [
        (one.node, *(_room(room) for room in one.rooms), "yes" if one.fits else "no", _why(one))
        for one in ranked[:NODES_TOLD]
    ]
    asked = ", ".join(f"{resource_name(room.of)} {amount(room.asked, room.of)}" for room in rooms[0].rooms)
    more = f"\nand {count(len(rooms) - NODES_TOLD, 'node')} more" if len(rooms) > NODES_TOLD else ""
    return f"asked for: {asked or 'nothing'}\n{table(head, rows)}{more}"


def _room(room: Room) -> str:
    left = "?" if room.left is None else amount(room.left, room.of)
    return "none" if room.sold is None else f"{left} / {amount(room.sold, room.of)}"


def _why(one: NodeRoom) -> str:
    if one.passed_over:
        return one.passed_over
    short = [resource_name(room.of) for room in one.rooms if not room.enough]
    if not short:
        return ""
    return one.why_none or f"short of {', '.join(short)}"


def _evictions(found: Sequence[Eviction]) -> str:
    rows = [
        (
            instant(one.acted_ms),
            one.name,
            one.node,
            one.rule,
            one.observed or "-",
            _came(one),
            str(one.spent) if one.done and one.spent is not None else "-",
            ", ".join(f"{place.partition}:{place.offset}" for place in one.places),
        )
        for one in found[:EVICTIONS_TOLD]
    ]
    head = ("WHEN", "POD", "NODE", "RULE", "OBSERVED", "WHAT CAME OF IT", "CREDIT SPENT", "OUTCOMES")
    more = f"\nand {len(found) - EVICTIONS_TOLD} more" if len(found) > EVICTIONS_TOLD else ""
    return f"evictions, the newest first:\n{table(head, rows)}{more}"


def _came(one: Eviction) -> str:
    times = f", {one.count} times" if one.count > 1 else ""
    guard = " by the guard" if one.origin == "guard" else ""
    if not one.done:
        return f"{one.result}{guard}: {one.reason}{times}"
    return f"evicted{guard}, {one.ended or one.reason}"
