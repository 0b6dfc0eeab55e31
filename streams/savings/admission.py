"""Computes the best-effort use that native requests would have admitted on a node. Pure, in integers.

Kubernetes admits a pod if its requests fit into allocatable minus the other requests. docs/savings.md derives the three
figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

CPU, MEM = 0, 1
BOTH = (CPU, MEM)


class Amounts(NamedTuple):
    """CPU in millicores, memory in bytes."""

    cpu_milli: int
    mem_bytes: int


NOTHING = Amounts(0, 0)


class Batch(NamedTuple):
    """One best-effort pod."""

    request: Amounts
    """The request in its own class of resources."""
    used: Amounts


class Admitted(NamedTuple):
    """Use that native requests would have admitted: ``least <= likely <= most <= used``."""

    least: Amounts
    likely: Amounts
    most: Amounts


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Return the sum per resource."""
    cpu_milli = mem_bytes = 0
    for cpu, mem in amounts:
        cpu_milli += cpu
        mem_bytes += mem
    return Amounts(cpu_milli, mem_bytes)


def admitted(pods: Sequence[Batch], room: Amounts) -> Admitted:
    """Split the use of best-effort pods at one time.

    Args:
        pods: of one node. A pod without requests is always admitted.
        room: allocatable minus the requests of all other pods; at least 0.
    """
    used, requested = total(pod.used for pod in pods), total(pod.request for pod in pods)
    short = [resource for resource in BOTH if requested[resource] > room[resource]]
    if not short:
        return Admitted(used, used, used)
    scarce = min(short, key=lambda resource: room[resource] / requested[resource])
    asking = [pod for pod in pods if any(pod.request)]
    free = total(pod.used for pod in pods if not any(pod.request))
    parts = []
    for of in BOTH:
        asked = sum(pod.used[of] for pod in asking)
        likely = asked * room[scarce] // requested[scarce]
        least = min(likely, _least(asking, of, scarce, room[scarce]))
        most = max(likely, min(_most(asking, of, resource, room[resource]) for resource in short))
        parts.append([free[of] + part for part in (least, likely, most)])
    return Admitted(*(Amounts(cpu, mem) for cpu, mem in zip(*parts, strict=True)))


def _least(pods: Sequence[Batch], of: int, scarce: int, room: int) -> int:
    """Fill the room with pods of the least use per request."""
    asking = [pod for pod in pods if pod.request[scarce]]
    return _filled(sorted(asking, key=lambda pod: pod.used[of] / pod.request[scarce]), of, scarce, room)


def _most(pods: Sequence[Batch], of: int, scarce: int, room: int) -> int:
    """Fill the room with pods of the most use per request; those without a request are free."""
    asking = [pod for pod in pods if pod.request[scarce]]
    best = sorted(asking, key=lambda pod: -pod.used[of] / pod.request[scarce])
    return _filled(best, of, scarce, room) + sum(pod.used[of] for pod in pods if not pod.request[scarce])


def _filled(pods: Iterable[Batch], of: int, scarce: int, room: int) -> int:
    """Return the use of pods that fit in this order, the last one in part, which bounds any packing of whole pods."""
    used = 0
    for pod in pods:
        request = pod.request[scarce]
        if request > room:
            return used + pod.used[of] * room // request
        used += pod.used[of]
        room -= request
    return used
