"""Read a sample record, and refuse one whose figures no machine can have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

import msgspec
from msgspec import Raw

from slacktide.schemas.boot import boot_problem
from slacktide.schemas.bounds import TIME_MS_MAX, Count, Name, Revision
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.heartbeat import RESERVED
from slacktide.schemas.message import Message
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns import Of
from slacktide.schemas.sample_columns_codec import BEGIN, UnknownPodsError, carried, decode_of, fields_of, head_of
from slacktide.schemas.sample_columns_codec import identity_of as identity_of_columns
from slacktide.streams.records import Record

ABSENT = Raw()


class SoundSample(NodeSample, frozen=True, kw_only=True):
    """A sample with all figures in range; pods and facts stay undecoded.

    Mostly their revision is known, and so are they.
    """

    facts: Raw = ABSENT  # type: ignore[assignment]
    pods: Raw = ABSENT  # type: ignore[assignment]


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


class Naming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a sample in columns names; its figures are read with those of others."""

    of: Of
    seq: int
    pods: Raw
    facts: Raw

    node: ClassVar = property(lambda self: self.of.node)
    boot_id: ClassVar = property(lambda self: self.of.boot_id)
    clock_epoch: ClassVar = property(lambda self: self.of.clock_epoch)
    facts_revision: ClassVar = property(lambda self: self.of.facts_revision)
    pods_revision: ClassVar = property(lambda self: self.of.pods_revision)


class UnsoundError(BadMessageError):
    """A sample that cannot be used, although its node can be answered."""

    def __init__(self, sample: Answerable, why: str) -> None:
        super().__init__("NodeSample", why)
        self.sample = sample


class UnlistedError(UnsoundError):
    """A sample in columns whose pod list is not known: its node can be answered, and its figures mean nothing."""

    sample: SoundSample

    def __init__(self, sample: SoundSample, why: str) -> None:
        super().__init__(sample, why)


PodsOf: TypeAlias = Callable[[str], Sequence[str] | None]
"""By revision the uids of a node's pod list; None: it is not known."""


def sample_of(record: Record, pods_of: PodsOf = lambda _: None) -> SoundSample:
    """Decode it, in whichever form it has: a replay hands over rows where columns were written.

    Args:
        record: a sample.
        pods_of: the pod lists of its node.

    Raises:
        UnlistedError: the pod list that a sample in columns names is not known.
        UnsoundError: a field cannot be used, its path, value and range are in the text; or no agent has its boot id.
        BadMessageError: it is no sample, or not of the node that its key names.

    """
    try:
        sample = _decoded(record, pods_of)
    except UnknownPodsError as exc:
        sample = SoundSample(**exc.fields)
        check_key(record, sample.node, "NodeSample")
        if why := boot_problem(sample.boot_id, record.timestamp_ms):
            raise UnsoundError(sample, why) from None
        raise UnlistedError(sample, exc.why) from None
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


def _decoded(record: Record, pods_of: PodsOf) -> SoundSample:
    if _in_columns(record):
        return SoundSample(**fields_of(record.value, pods_of))
    sample: SoundSample = decode(record.value, SoundSample)
    return sample


def naming_of(record: Record, seq: int) -> Naming:
    """Read what a sample in columns names.

    Args:
        record: of the sample.
        seq: its own.

    Raises:
        BadMessageError: it cannot be used. ``sample_of`` states why.

    """
    value = record.value or b""
    of = decode_of(value[: head_of(value)])
    check_key(record, of.node, "NodeSample")
    if why := boot_problem(of.boot_id, record.timestamp_ms):
        raise BadMessageError("NodeSample", why)
    facts, pods = carried(value)
    return Naming(of=of, seq=seq, pods=pods, facts=facts)


def check_key(record: Record, wanted: str, kind: str) -> None:
    """Refuse a body under another node's key, and a node whose name is reserved.

    Raises:
        BadMessageError: it is.

    """
    if wanted.startswith(RESERVED):
        raise BadMessageError(kind, f"node {wanted!r}: names that begin with {RESERVED} are reserved")
    if record.key != wanted.encode():
        raise BadMessageError(kind, f"the record's key is {record.key!r}, not {wanted!r}")


def identity_of(record: Record) -> Identity:
    """Read who waits for an answer, whatever else the sample holds.

    Raises:
        BadMessageError: the record does not name it, or is not of the node that its key names.

    """
    found = _identity_in_columns(record) if _in_columns(record) else decode(record.value, Identity)
    check_key(record, found.node, "NodeSample")
    return msgspec.structs.replace(found, observed_ms=min(max(found.observed_ms, 0), TIME_MS_MAX))


def _in_columns(record: Record) -> bool:
    return record.value is not None and record.value.startswith(BEGIN)


def _identity_in_columns(record: Record) -> Identity:
    of, seq, observed_ms = identity_of_columns(record.value or b"")
    fields = {
        "node": of.node,
        "boot_id": of.boot_id,
        "seq": seq,
        "observed_ms": observed_ms,
        "facts_revision": of.facts_revision,
        "pods_revision": of.pods_revision,
    }
    try:
        return msgspec.convert(fields, Identity)
    except msgspec.ValidationError as exc:
        raise BadMessageError("NodeSample", str(exc)) from exc
