"""Computes the usage of ClusterQueues, as plain data and as rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from slacktide.schemas.queue_objects import QueueObject
from slacktide.schemas.units import cpu_text, mem_text
from slacktide.streams.decisions.queue.cluster_objects import queue_cluster
from slacktide.streams.decisions.queue.preempt import excess
from slacktide.streams.decisions.queue.quota_tree import UNLIMITED
from slacktide.streams.decisions.queue.scheduling import Scheduling

AMOUNTS = ("nominal", "used", "borrowed")


class QuotaRow(msgspec.Struct, frozen=True):
    """One resource of a flavor; CPU in millicores, memory in bytes, others in whole units."""

    flavor: str
    resource: str
    nominal: int
    used: int
    borrowed: int
    """Use above the nominal quota."""


class QueueRow(msgspec.Struct, frozen=True):
    """One ClusterQueue."""

    cluster_queue: str
    cohort: str
    pending_count: int
    admitted_count: int
    """Workloads with quota, including those that are stopping."""
    evicting_count: int
    quotas: list[QuotaRow]


class ExceedsRow(msgspec.Struct, frozen=True):
    """A ClusterQueue that exceeds its quotas after they shrank."""

    cluster_queue: str
    amounts: dict[str, int]
    """The amounts by FLAVOR/RESOURCE; CPU in millicores, memory in bytes, others in whole units."""
    workloads: list[str]
    """NAMESPACE/NAME of workloads that must stop, in order."""


class Standing(NamedTuple):
    """All ClusterQueues by name, and notes about objects that could not be counted."""

    queues: list[QueueRow]
    notes: list[str]
    exceeds: list[ExceedsRow]


def standing(objects: Sequence[QueueObject]) -> Standing:
    """Compute the usage of ClusterQueues. Raises CaseError if an object is invalid."""
    given = queue_cluster(objects)
    state = Scheduling(given.queues, given.holders)
    waiting = Counter(one.queue for one in given.waiting)
    evicted = [one for one in given.holders if one.queued.evicted is not None and one.queued.evicted.status]
    admitted, evicting = (Counter(one.queue.name for one in some) for some in (given.holders, evicted))
    queues = []
    for one in sorted(given.queues, key=lambda one: one.node.name):
        node = one.node
        quotas = [
            QuotaRow(
                of.flavor, of.resource, quota.nominal, used := state.usage.usage(node, of), max(0, used - quota.nominal)
            )
            for of, quota in sorted(node.quotas.items())
        ]
        cohort = node.parent.name if node.parent is not None else ""
        name = node.name
        queues.append(QueueRow(name, cohort, waiting[name], admitted[name], evicting[name], quotas))
    exceeds = [
        ExceedsRow(
            one.queue,
            {f"{of.flavor}/{of.resource}": amount for of, amount in sorted(one.amounts.items())},
            [given.names.get(uid, uid) for uid in one.stops],
        )
        for one in excess(state.holders.values(), state.usage)
    ]
    return Standing(queues, given.notes, exceeds)


def exceeds_text(one: ExceedsRow) -> str:
    """Format a line of the report."""
    amounts = ", ".join(
        f"{amount_text(key.partition('/')[2], amount)} {key.partition('/')[2]} of {key.partition('/')[0]}"
        for key, amount in one.amounts.items()
    )
    stops = ", ".join(one.workloads) or "workloads of other ClusterQueues, which borrow"
    return f"ClusterQueue {one.cluster_queue} exceeds its quota by {amounts}; will be stopped: {stops}"


def rows(queues: Sequence[QueueRow], *, wide: bool) -> tuple[list[str], list[tuple[str | int, ...]]]:
    """Return the table's header and rows."""
    of_flavor = ["FLAVOR", "RESOURCE"] if wide else []
    head = ["CLUSTERQUEUE", "COHORT", *of_flavor, *map(str.upper, AMOUNTS), "PENDING", "ADMITTED", "EVICTING"]
    found: list[tuple[str | int, ...]] = []
    for one in queues:
        first = one.cluster_queue, one.cohort or "-"
        last = one.pending_count, one.admitted_count, one.evicting_count
        if wide:
            for each in one.quotas:
                amounts = (amount_text(each.resource, getattr(each, name)) for name in AMOUNTS)
                found.append((*first, each.flavor, each.resource, *amounts, *last))
        else:
            found.append((*first, *(_sum(one, name) for name in AMOUNTS), *last))
    return head, found


def _sum(one: QueueRow, field: str) -> str:
    """Sum an amount over flavors, per resource."""
    total: dict[str, int] = {}
    for each in one.quotas:
        total[each.resource] = total.get(each.resource, 0) + getattr(each, field)
    return (
        ", ".join(f"{amount_text(resource, amount)} {resource}" for resource, amount in total.items() if amount) or "-"
    )


def amount_text(resource: str, amount: int) -> str:
    """Format an amount with its unit: CPU in cores, memory in powers of 1,024."""
    if amount >= UNLIMITED:
        return "unlimited"
    return cpu_text(amount) if resource == "cpu" else mem_text(amount) if resource == "memory" else str(amount)
