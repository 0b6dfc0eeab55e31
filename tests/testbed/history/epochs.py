"""What only ever rises: governors' epochs and numbers, boots, clock epochs, writers' epochs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.policy import Policy
from slacktide.schemas.topics import CREDIT, POLICY
from testbed.history.evictions import spending
from testbed.history.records import History
from testbed.history.verdict import Verdict, verdict


def epochs_monotone(history: History) -> Verdict:
    """In the order of the records, each kind by its own key."""
    leases = [entry.body for entry in history.of(CREDIT, EvictionCredit)]
    series: list[tuple[str, list[tuple[int, ...]], bool]] = [
        ("lease (epoch, number)", [(one.epoch, one.number) for one in leases], True),
        ("policy writer epoch", [(entry.body.writer_epoch,) for entry in history.of(POLICY, Policy)], False),
    ]
    for node, outcomes in spending(history).items():
        spent = [(int(each.boot_id[:12]), each.spent.epoch) for each in outcomes if each.spent is not None]
        series.append((f"{node}: boot and epoch that granted evictions", spent, False))
    by_node: dict[str, list[tuple[int, ...]]] = {}
    for entry in history.samples:
        order = (int(entry.body.boot_id[:12]), entry.body.seq, entry.body.clock_epoch)
        by_node.setdefault(entry.body.node, []).append(order)
    for node, orders in by_node.items():
        series.append((f"{node}: boot", [order[:1] for order in orders], False))
        series.append((f"{node}: boot and clock epoch", [(boot, clock) for boot, _, clock in sorted(orders)], False))
    broken = [f"{what}: {fall}" for what, values, strict in series for fall in falls(values, strict=strict)]
    return verdict("epochs monotone", sum(len(values) for _, values, _ in series), broken)


def falls(values: Iterable[tuple[int, ...]], *, strict: bool) -> list[str]:
    """Where a series goes down, or stands still though it must not."""
    return [f"{one} then {other}" for one, other in pairwise(values) if other < one or (strict and other == one)]
