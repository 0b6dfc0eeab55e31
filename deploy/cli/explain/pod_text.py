"""Formats a pod's explanation for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.deploy.cli.explain.findings import age, findings_text
from slacktide.deploy.cli.explain.placement_text import placement_text
from slacktide.deploy.runtime.text import count, instant, table
from slacktide.schemas.inventory import Resources
from slacktide.streams.explain.evictions import Eviction
from slacktide.streams.explain.placement import NodeRoom, Room
from slacktide.streams.explain.pod import PodExplanation
from slacktide.streams.explain.selling import amount, resource_name

NODES_SHOWN = 20
EVICTIONS_SHOWN = 20


def pod_text(explanation: PodExplanation) -> str:
    """Return the complete text."""
    parts = ["\n".join(_head(explanation)), findings_text(explanation.findings)]
    if explanation.rooms:
        parts.append(_rooms(explanation.rooms))
    if explanation.placement is not None:
        parts.append(placement_text(explanation.placement, explanation.asked_ms))
    if explanation.evictions:
        parts.append(_evictions(explanation.evictions))
    return "\n\n".join(parts)


def _head(explanation: PodExplanation) -> Iterator[str]:
    placed = explanation.placement is not None and explanation.placement.body.passed
    nowhere = "on no node with figures" if placed else "on no node"
    where = f"on node {explanation.node}" if explanation.node else nowhere
    of_class = f", {explanation.qos}, {explanation.priority_class}" if explanation.qos else ""
    yield f"pod {explanation.namespace}/{explanation.name}, {where}{of_class}"
    if explanation.requests is not None and explanation.limits is not None:
        place = "" if explanation.pod_place is None else f" ({explanation.pod_place})"
        yield f"  requests {_resources(explanation.requests)}; limits {_resources(explanation.limits)}{place}"
    run = explanation.running
    if run is not None:
        cpu, mem = amount(run.use.cpu_milli, "cpu_milli"), amount(run.use.mem_bytes, "mem_bytes")
        covered = f"{run.covered_ms / 1000:.0f} of {run.window_ms / 1000:.0f} s"
        yield f"  uses {cpu}, {mem} on average over {covered}, {age(run.age_ms)} ({run.place})"


def _resources(amounts: Resources) -> str:
    asked = [(field, getattr(amounts, field)) for field in amounts.__struct_fields__]
    return ", ".join(f"{resource_name(field)} {amount(value, field)}" for field, value in asked if value) or "nothing"


def _rooms(rooms: Sequence[NodeRoom]) -> str:
    """Format the nodes, best first: those where the pod fits, then those that match its selector."""
    ranked = sorted(rooms, key=lambda one: (not one.fits, not one.selected, one.node))
    head = ["NODE", *(f"{resource_name(room.of).upper()} FREE/OFFERED" for room in rooms[0].rooms), "FITS", "WHY NOT"]
    rows = [
        (one.node, *(_room(room) for room in one.rooms), "yes" if one.fits else "no", _why(one))
        for one in ranked[:NODES_SHOWN]
    ]
    asked = ", ".join(f"{resource_name(room.of)} {amount(room.asked, room.of)}" for room in rooms[0].rooms)
    more = f"\nand {count(len(rooms) - NODES_SHOWN, 'node')} more" if len(rooms) > NODES_SHOWN else ""
    return f"requested: {asked or 'nothing'}\n{table(head, rows)}{more}"


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
        for one in found[:EVICTIONS_SHOWN]
    ]
    head = ("WHEN", "POD", "NODE", "RULE", "OBSERVED", "RESULT", "CREDIT SPENT", "OUTCOMES")
    more = f"\nand {len(found) - EVICTIONS_SHOWN} more" if len(found) > EVICTIONS_SHOWN else ""
    return f"evictions, the newest first:\n{table(head, rows)}{more}"


def _came(one: Eviction) -> str:
    times = f", {one.count} times" if one.count > 1 else ""
    guard = " by the guard" if one.origin == "guard" else ""
    if not one.done:
        return f"{one.result}{guard}: {one.reason}{times}"
    return f"evicted{guard}, {one.ended or one.reason}"
