"""Read a sample record, and refuse one whose figures no machine can have."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Raw

from slacktide.schemas.boot import boot_problem
from slacktide.schemas.bounds import TIME_MS_MAX, Count, Name, Revision
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.message import Message
from slacktide.schemas.sample import NodeSample
from slacktide.streams.records import Record

NOT_SAID = Raw()


class SoundSample(NodeSample, frozen=True, kw_only=True):
    """A sample with all figures in range; pods and facts stay undecoded.

    Mostly their revision is known, and so are they.
    """

    facts: Raw = NOT_SAID  # type: ignore[assignment]
    pods: Raw = NOT_SAID  # type: ignore[assignment]


class Identity(Message, frozen=True, kw_only=True):
    """What an answer repeats of a sample; all else of it may be unreadable."""

    node: Name
    boot_id: Revision
    seq: Count
    observed_ms: int
    """As written; the answer needs it within ``TIME_MS_MAX``."""
    facts_revision: Revision = ""
    pods_revision: Revision = ""


Answerable: TypeAlias = NodeSample | Identity


class UnsoundError(BadMessageError):
    """A sample that cannot be used, although its node can be answered."""

    def __init__(self, sample: Answerable, why: str) -> None:
        super().__init__("NodeSample", why)
        self.sample = sample


def sample_of(record: Record) -> SoundSample:
    """Decode it.

    Raises:
        UnsoundError: a field cannot be used, its path, value and range are in the text; or no agent has its boot id.
        BadMessageError: it is no sample, or not of the node that its key names.

    """
    try:
        sample: SoundSample = decode(record.value, SoundSample)
    except BadMessageError as exc:
        try:
            identity = identity_of(record)
        except BadMessageError:
            raise exc from None
        raise UnsoundError(identity, exc.why) from None
    check_key(record, sample.node, "NodeSample")
    if why := boot_problem(sample.boot_id, record.timestamp_ms):
        raise UnsoundError(sample, why)
    return sample


def check_key(record: Record, wanted: str, kind: str) -> None:
    """Refuse a body under another node's key.

    Raises:
        BadMessageError: it is.

    """
    if record.key != wanted.encode():
        raise BadMessageError(kind, f"the record's key is {record.key!r}, not {wanted!r}")


def identity_of(record: Record) -> Identity:
    """Read who waits for an answer, whatever else the sample holds.

    Raises:
        BadMessageError: the record does not say, or is not of the node that its key names.

    """
    found = decode(record.value, Identity)
    check_key(record, found.node, "NodeSample")
    return msgspec.structs.replace(found, observed_ms=min(max(found.observed_ms, 0), TIME_MS_MAX))
