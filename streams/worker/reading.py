"""Records in: what a sample says, refused where no machine can have said it."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Raw

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.sample import NodeSample, NodeUse, PodUse
from slacktide.streams.records import TIME_MS_MAX, Record

AMOUNT_MAX = 2**50
"""Of millicores, bytes and milliseconds in a sample: more is an error, not a machine."""
_Amount: TypeAlias = Annotated[int, Meta(ge=0, le=AMOUNT_MAX)]


NOT_SAID = Raw()


class _SoundNodeUse(NodeUse, frozen=True, kw_only=True):
    cpu_milli: _Amount | None = None
    mem_bytes: _Amount | None = None


class _SoundPodUse(PodUse, frozen=True, kw_only=True):
    cpu_milli: _Amount | None = None
    mem_bytes: _Amount | None = None


class SoundSample(NodeSample, frozen=True, kw_only=True):
    """One whose figures a machine can have: they are looked at while it is decoded, as all but a few are sound.

    Pods and facts are left as they are written: mostly the revision that they go by is known, and so are they.
    """

    seq: _Amount
    interval_ms: _Amount
    observed_ms: Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
    use: _SoundNodeUse
    pod_use: list[_SoundPodUse]  # type: ignore[assignment]  # a list that nobody writes to
    facts: Raw = NOT_SAID  # type: ignore[assignment]
    pods: Raw = NOT_SAID  # type: ignore[assignment]


class UnsoundError(BadMessageError):
    """A sample with figures that no machine has: it cannot be used, but its node can be answered."""

    def __init__(self, sample: NodeSample, why: str) -> None:
        super().__init__("NodeSample", why)
        self.sample = sample


def sample_of(record: Record) -> SoundSample:
    """Decode it.

    Raises:
        UnsoundError: it has figures that no machine has; with the first such field, its value and the range.
        BadMessageError: it is no sample, or not of the node that its key names.

    """
    try:
        sample: SoundSample = decode(record.value, SoundSample)
    except BadMessageError:
        other: NodeSample = decode(record.value, NodeSample)
        check_key(record, other.node, "NodeSample")
        raise UnsoundError(other, _unsound(other)) from None
    check_key(record, sample.node, "NodeSample")
    return sample


def check_key(record: Record, wanted: str, kind: str) -> None:
    """Refuse a body under another node's key.

    Raises:
        BadMessageError: it is.

    """
    if record.key != wanted.encode():
        raise BadMessageError(kind, f"the record's key is {record.key!r}, not {wanted!r}")


def _unsound(sample: NodeSample) -> str:
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
                return f"{name} is {amount}, not from 0 to {AMOUNT_MAX}"
    return f"observed_ms is {sample.observed_ms}, past the year 9999"
