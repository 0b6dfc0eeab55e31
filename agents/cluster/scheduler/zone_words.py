"""Messages about NUMA zones: which a pod gets, or what they lack. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from slacktide.streams.decisions.numa.filter import Lack
from slacktide.streams.decisions.numa.placement import Reservation, ZonesGiven, ZonesRefusal
from slacktide.streams.decisions.numa.topology import CPU, Amounts, is_memory

RESERVED_NAMED = 3
_MIB = 2**20


def lacking_zones(lacking: Mapping[str, ZonesRefusal]) -> str:
    """Return what the pod requests of zones, the closest node, and whose reservations count there."""
    node = min(lacking, key=lambda one: (-lacking[one].lacks[0].free, one))
    refusal = lacking[node]
    lacks = [_of_lack(lack, before) for lack, before in zip(refusal.lacks, refusal.free_before, strict=True)]
    return f"closest is node {node}: {'; '.join([*lacks, *_reserved(refusal.reservations)])}"


def given_zones(given: ZonesGiven) -> str:
    """Return the zones that a kubelet would assign, their free resources before and after, and counted reservations."""
    parts = [f"{_name(one.container)} requests {_amounts(one.request)}, {_ids(one.zones)}" for one in given.requests]
    parts += [
        f"zone {zone}: {', '.join(_change(name, free, given.after[zone][name]) for name, free in before.items())}"
        for zone, before in given.before.items()
    ]
    if given.unaligned:
        parts.append(f"would not be aligned: {', '.join(_of_lack(lack, lack.free) for lack in given.unaligned)}")
    if given.moved:
        moved = ", ".join(given.moved)
        parts.append(f"the kubelet rejects {moved} if it reuses an init container's CPUs, which are in other zones")
    if given.not_charged:
        parts.append(f"overhead {_amounts(given.not_charged)} is counted in no zone")
    return "; ".join([*parts, *_reserved(given.reservations)])


def _reserved(reservations: Sequence[Reservation]) -> Iterator[str]:
    if reservations:
        names = [f"{one.name} ({_amounts(one.reserved)})" for one in reservations[:RESERVED_NAMED]]
        more = len(reservations) - len(names)
        yield f"reserved for {', '.join(names)}{f' and {more} more' if more else ''} until its zones show them"


def _of_lack(lack: Lack, before: int) -> str:
    asks = f"pod requests {lack.resource} {_amount(lack.resource, lack.asked)}"
    if lack.best_zone is None:
        return f"{asks}, but no zone has this resource"
    free = f"zone {lack.best_zone} has {_amount(lack.resource, lack.free)} free"
    return f"{asks}, {free}" + (f" of {_amount(lack.resource, before)}" if before != lack.free else "")


def _name(container: str | None) -> str:
    return "pod" if container is None else f"container {container}"


def _ids(zones: Sequence[int]) -> str:
    """Zone ids."""
    return f"{'zone' if len(zones) == 1 else 'zones'} {'+'.join(map(str, zones))}" if zones else "any zone"


def _change(resource: str, before: int, after: int) -> str:
    return f"{resource} {_amount(resource, before)} free, {_amount(resource, after)} with it"


def _amounts(amounts: Amounts) -> str:
    return " ".join(f"{name} {_amount(name, amount)}" for name, amount in sorted(amounts.items())) or "nothing"


def _amount(resource: str, amount: int) -> str:
    """In Kubernetes' notation; devices as a count."""
    if resource == CPU:
        return f"{amount}m"
    return f"{amount // _MIB}Mi" if is_memory(resource) else str(amount)
