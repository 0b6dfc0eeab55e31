"""Decodes sample records, and rejects figures out of range."""

from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

import msgspec
from msgspec import Raw

from slacktide.schemas.bounds import TIME_MS_MAX, Count
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.heartbeat import RESERVED
from slacktide.schemas.sample import NodeSample, boot_problem
from slacktide.schemas.sample_columns import Of
from slacktide.schemas.sample_columns_codec import UnknownPodsError, carried, decode_of, fields_of, head_of
from slacktide.schemas.sample_columns_codec import identity_of as named_identity
from slacktide.streams.records import Record

ABSENT = Raw()


class SoundSample(NodeSample, frozen=True, kw_only=True):
    """A sample with all figures in range. Pods and facts stay encoded: they are usually known by revision."""

    facts: Raw = ABSENT  # type: ignore[assignment]
    pods: Raw = ABSENT  # type: ignore[assignment]


class Naming(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a sample names: its figures are decoded with those of others, or cannot be read."""

    of: Of
    seq: int
    observed_ms: int
    pods: Raw = ABSENT
    facts: Raw = ABSENT

    node: ClassVar = property(lambda self: self.of.node)
    boot_id: ClassVar = property(lambda self: self.of.boot_id)
    clock_epoch: ClassVar = property(lambda self: self.of.clock_epoch)
    facts_revision: ClassVar = property(lambda self: self.of.facts_revision)
    pods_revision: ClassVar = property(lambda self: self.of.pods_revision)


Answerable: TypeAlias = NodeSample | Naming


class UnsoundError(BadMessageError):
    """A sample that cannot be used, although its node can be answered."""

    def __init__(self, sample: Answerable, why: str) -> None:
        super().__init__("NodeSample", why)
        self.sample = sample


class UnlistedError(UnsoundError):
    """A sample with an unknown pod list: it can be answered, but its figures are undefined."""

    sample: SoundSample

    def __init__(self, sample: SoundSample, why: str) -> None:
        super().__init__(sample, why)


PodsOf: TypeAlias = Callable[[str], Sequence[str] | None]
"""Returns the uids of a node's pod list by revision; None: unknown."""


def sample_of(record: Record, pods_of: PodsOf = lambda _: None) -> SoundSample:
    """Decode a sample; ``pods_of``: its node's pod lists.

    Raises:
        UnlistedError: its pod list is unknown.
        UnsoundError: a field is invalid (the text has path, value and range), or no agent has its boot id.
        BadMessageError: it is not a sample, or not of the node in its key.
    """
    try:
        sample = SoundSample(**fields_of(record.value, pods_of))
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


def naming_of(record: Record, seq: int = 0, observed_ms: int = 0) -> Naming:
    """Decode what a sample names; ``seq`` and ``observed_ms``: its numbers, if they matter.

    Raises BadMessageError if it cannot be used. ``sample_of`` returns the reason.
    """
    value = record.value or b""
    of = decode_of(value[: head_of(value)])
    check_key(record, of.node, "NodeSample")
    if why := boot_problem(of.boot_id, record.timestamp_ms):
        raise BadMessageError("NodeSample", why)
    facts, pods = carried(value)
    return Naming(of=of, seq=seq, observed_ms=observed_ms, pods=pods, facts=facts)


def check_key(record: Record, wanted: str, kind: str) -> None:
    """Check that the key is the node's name, and that the name is not reserved.

    Raises BadMessageError if either check fails.
    """
    if wanted.startswith(RESERVED):
        raise BadMessageError(kind, f"node {wanted!r}: names that begin with {RESERVED} are reserved")
    if record.key != wanted.encode():
        raise BadMessageError(kind, f"the record's key is {record.key!r}, not {wanted!r}")


def identity_of(record: Record) -> Naming:
    """Decode the node and boot that wait for an answer, whatever else the sample holds.

    Raises BadMessageError if the record does not name it, or is not of the node in its key.
    """
    of, *numbers = named_identity(record.value or b"")
    try:
        seq, observed_ms = msgspec.convert(numbers, tuple[Count, int])
    except msgspec.ValidationError as exc:
        raise BadMessageError("NodeSample", str(exc)) from exc
    check_key(record, of.node, "NodeSample")
    return Naming(of=of, seq=seq, observed_ms=min(max(observed_ms, 0), TIME_MS_MAX))
