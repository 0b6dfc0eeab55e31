"""Decodes the governor's input records."""

from __future__ import annotations

from slacktide.schemas.bounds import Count, Name, Revision
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome
from slacktide.streams.records import Record


class NodeLiveness(Message, frozen=True, kw_only=True):
    """A NodeMetric without figures: shows that a boot of a node lives, unless it is stale."""

    node: Name
    boot_id: Revision
    stale_ms: Count = 0


def outcome_of(record: Record) -> NodeOutcome:
    """Decode an outcome.

    Raises:
        BadMessageError: it is not an outcome, or its key names another node.
    """
    outcome = decode(record.value, NodeOutcome)
    _check_key(record, outcome.node, "NodeOutcome")
    return outcome


def lease_of(record: Record) -> EvictionCredit:
    """Decode a lease.

    Raises:
        BadMessageError: it is not a lease, or its key names another node.
    """
    lease = decode(record.value, EvictionCredit)
    _check_key(record, lease.node, "EvictionCredit")
    return lease


def _check_key(record: Record, node: str, kind: str) -> None:
    if record.key != node.encode():
        raise BadMessageError(kind, f"the record's key is {record.key!r}, not {node!r}")
