"""Records in: what a sample says, refused where no machine can have said it."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.sample import NodeSample
from slacktide.streams.records import TIME_MS_MAX, Record

AMOUNT_MAX = 2**50
"""Of millicores, bytes and milliseconds in a sample: more is an error, not a machine."""


def sample_of(record: Record) -> NodeSample:
    """Decode it; its figures are not looked at yet.

    Raises:
        BadMessageError: it is no sample, or not of the node that its key names.

    """
    sample = decode(record.value, NodeSample)
    check_key(record, sample.node, "NodeSample")
    return sample


def check_key(record: Record, wanted: str, kind: str) -> None:
    """Refuse a body under another node's key.

    Raises:
        BadMessageError: it is.

    """
    if record.key != wanted.encode():
        raise BadMessageError(kind, f"the record's key is {record.key!r}, not {wanted!r}")


def check_amounts(sample: NodeSample) -> None:
    """Refuse figures that no machine has.

    Raises:
        BadMessageError: with the first such field, its value and the range.

    """
    use, uses = sample.use, sample.pod_use
    amounts = [sample.interval_ms, sample.seq, use.cpu_milli, use.mem_bytes]
    amounts += [one.cpu_milli for one in uses]
    amounts += [one.mem_bytes for one in uses]
    if not _fine(amounts):
        _refuse(sample)
    if sample.observed_ms > TIME_MS_MAX:
        raise BadMessageError("NodeSample", f"observed_ms is {sample.observed_ms}, past the year 9999")


def _fine(amounts: Sequence[int | None]) -> bool:
    try:
        return min(amounts) >= 0 and max(amounts) <= AMOUNT_MAX  # type: ignore[type-var,operator]
    except TypeError:  # some are not known
        return _fine([amount for amount in amounts if amount is not None])


def _refuse(sample: NodeSample) -> None:
    amounts = {
        "interval_ms": (sample.interval_ms,),
        "seq": (sample.seq,),
        "use.cpu_milli": (sample.use.cpu_milli,),
        "use.mem_bytes": (sample.use.mem_bytes,),
        "pod_use.cpu_milli": [use.cpu_milli for use in sample.pod_use],
        "pod_use.mem_bytes": [use.mem_bytes for use in sample.pod_use],
    }
    for name, some in amounts.items():
        for amount in some:
            if amount is not None and not 0 <= amount <= AMOUNT_MAX:
                raise BadMessageError("NodeSample", f"{name} is {amount}, not from 0 to {AMOUNT_MAX}")
