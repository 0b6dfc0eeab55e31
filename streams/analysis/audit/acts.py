"""Converts audit records to acts, each with a short text, and to lines of an export: without duplicates. Pure."""

import base64
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from slacktide.schemas.codec import decode
from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.pod_admission import PodAdmission
from slacktide.streams.decisions.evict.node_evict import ENDS, HOLDS
from slacktide.streams.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One act, and its place in the topic."""

    partition: int
    offset: int
    body: NodeOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """The selected acts, oldest first, and the number of records that could not be decoded."""

    acts: list[Act]
    unreadable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Selects acts; "": all. ``pod`` is ``namespace/name``, or only a namespace."""

    node: str = ""
    pod: str = ""

    def wants(self, one: NodeOutcome) -> bool:
        """Return whether the act is selected. A hold on all best-effort pods of a node matches no pod."""
        if self.node and one.node != self.node:
            return False
        if not self.pod:
            return True
        namespace, _, name = self.pod.partition("/")
        pod = one.concerns
        return pod is not None and pod.namespace == namespace and name in {"", pod.name}


def prefilter(choice: Choice) -> Callable[[Record], bool]:
    """Return whether a record may be selected, by its bytes: decoding takes longer."""
    namespace, _, name = choice.pod.partition("/")
    needed = [f'"{key}":"{text}"'.encode() for key, text in (("namespace", namespace), ("name", name)) if text]
    key = choice.node.encode() if choice.node else None

    def wanted(record: Record) -> bool:
        value = record.value
        if not isinstance(value, bytes):
            return True
        return (key is None or record.key == key) and all(part in value for part in needed)

    return wanted


def acts_of(records: Iterable[Record], choice: Choice) -> Acts:
    """Return the acts in the order of the node's time, without duplicates."""
    acts: dict[bytes, Act] = {}
    unreadable = 0
    for record in records:
        value = record.value
        try:
            body = decode(value, NodeOutcome)
        except BadMessageError:
            unreadable += 1
            continue
        assert isinstance(value, bytes)
        if choice.wants(body) and value not in acts:
            acts[value] = Act(partition=record.partition, offset=record.offset, body=body)
    return Acts(acts=sorted(acts.values(), key=lambda one: (one.body.acted_ms, one.offset)), unreadable=unreadable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer of a namespace's quotas for one new pod, and its place in the topic."""

    partition: int
    offset: int
    body: PodAdmission


def admissions_of(records: Iterable[Record], pod: str) -> list[Answered]:
    """Return the answers in the order of the log, without duplicates; ``pod`` as in ``Choice``.

    Unreadable records are skipped.
    """
    namespace, _, name = pod.partition("/")
    found: dict[object, Answered] = {}
    for record in records:
        with suppress(BadMessageError):
            body = decode(record.value, PodAdmission)
            if namespace in {"", body.namespace} and name in {"", body.name}:
                place = {"partition": record.partition, "offset": record.offset}
                found.setdefault(record.value, Answered(**place, body=body))
    return list(found.values())


def what(one: NodeOutcome) -> str:
    """Describe the act in one or two words."""
    if one.bound in HOLDS:
        return f"not {one.bound}" if one.result == "failed" else one.bound
    if one.bound in ENDS:
        return one.bound
    if one.reclaimed is not None:
        return "reclaimed"
    return "evicted" if one.result == "applied" else "not evicted"


def content_of(record: Record) -> dict[str, object]:
    """Return the record's place, the broker's time, and the body: a NodeOutcome on one line unchanged, else base64."""
    place: dict[str, object] = {
        "partition": record.partition,
        "offset": record.offset,
        "appended_ms": record.timestamp_ms,
    }
    value = record.value
    if isinstance(value, UnreadableBatch):
        return place | {"unreadable": value.reason, "first_offset": value.first_offset}
    if value is None:
        return place | {"body": None}
    try:
        decode(value, NodeOutcome)
    except BadMessageError:
        return place | {"value_base64": base64.b64encode(value).decode()}
    if b"\n" in value or b"\r" in value:
        return place | {"value_base64": base64.b64encode(value).decode()}
    return place | {"body": msgspec.Raw(value)}
