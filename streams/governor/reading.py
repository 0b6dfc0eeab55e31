"""Of each record what a governor goes by."""

from __future__ import annotations

from slacktide.schemas.bounds import Count, Name, Revision
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.records import Record


class NodeLiveness(Message, frozen=True, kw_only=True):
    """A NodeMetric without its figures: a boot of a node lives, unless the metric is stale."""

    node: Name
    boot_id: Revision
    stale_ms: Count = 0


def outcome_of(record: Record) -> NodeOutcome:
    """What came of an eviction, or of anything else.

    Raises:
        BadMessageError: it is no outcome, or not of the node that its key names.

    """
    outcome = decode(record.value, NodeOutcome)
    _check_key(record, outcome.node, "NodeOutcome")
    return outcome


def lease_of(record: Record) -> EvictionCredit:
    """A lease.

    Raises:
        BadMessageError: it is none, or not of the node that its key names.

    """
    lease = decode(record.value, EvictionCredit)
    _check_key(record, lease.node, "EvictionCredit")
    return lease


def _check_key(record: Record, node: str, kind: str) -> None:
    if record.key != node.encode():
        raise BadMessageError(kind, f"the record's key is {record.key!r}, not {node!r}")
