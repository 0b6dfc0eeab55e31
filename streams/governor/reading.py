"""Of each record what a governor goes by."""

from __future__ import annotations

from slacktide.schemas.codec import decode
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Count, Message
from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.records import Record

COUNT_MAX = 2**53
"""Of epochs and totals: more is an error, not a count."""


class Sighting(Message, frozen=True, kw_only=True):
    """A NodeMetric without its figures: a boot of a node lives, unless the metric is stale."""

    node: str
    boot_id: str
    stale_ms: Count = 0


def outcome_of(record: Record) -> NodeOutcome:
    """What came of an eviction, or of anything else.

    Raises:
        BadMessageError: it is no outcome, or says a total that nobody reaches.

    """
    outcome = decode(record.value, NodeOutcome)
    if outcome.spent is not None and max(outcome.spent.evictions, outcome.spent.epoch) > COUNT_MAX:
        raise BadMessageError("NodeOutcome", f"a count in spent is over {COUNT_MAX}")
    return outcome


def lease_of(record: Record) -> EvictionCredit:
    """A lease.

    Raises:
        BadMessageError: it is none, or counts higher than anybody does.

    """
    lease = decode(record.value, EvictionCredit)
    if max(lease.epoch, lease.number, lease.granted, lease.spent, lease.ttl_ms) > COUNT_MAX:
        raise BadMessageError("EvictionCredit", f"a count is over {COUNT_MAX}")
    return lease
