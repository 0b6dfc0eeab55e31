"""Decodes and checks the queue's records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.queue import QueueOutcome, QueueRead, QueueSpec, QueueWorkload, spec_key
from slacktide.schemas.queue_objects import QueueObject
from slacktide.schemas.topics import QUEUE_OUTCOME, QUEUE_SPEC, QUEUE_WORKLOAD
from slacktide.streams.records import Record, text_of


class Inputs(NamedTuple):
    """New records by topic, in order."""

    specs: list[Record]
    workloads: list[Record]
    outcomes: list[Record]


def inputs_of(records: Iterable[Record]) -> Inputs:
    """Group records by topic; skip other topics."""
    found = Inputs([], [], [])
    into = {QUEUE_SPEC.name: found.specs, QUEUE_WORKLOAD.name: found.workloads, QUEUE_OUTCOME.name: found.outcomes}
    for record in records:
        if record.topic in into:
            into[record.topic].append(record)
    return found


def read_up_to(inputs: Inputs, before: QueueRead) -> QueueRead:
    """Return the read positions after these records."""
    spec, workload, outcome = (records[-1].offset + 1 if records else 0 for records in inputs)
    return QueueRead(
        spec=max(before.spec, spec), workload=max(before.workload, workload), outcome=max(before.outcome, outcome)
    )


def last_of_each(records: Iterable[Record]) -> list[Record]:
    """Return the last record of each key by offset, as after compaction."""
    found: dict[tuple[str, bytes | None], Record] = {}
    for record in records:
        found.pop((record.topic, record.key), None)
        found[record.topic, record.key] = record
    return list(found.values())


def object_of(record: Record) -> QueueObject:
    """Decode a queue object; raise BadMessageError if it is not exactly one, or its key names another."""
    objects = decode(record.value, QueueSpec).objects
    if len(objects) != 1:
        raise BadMessageError("QueueSpec", f"{len(objects)} objects; accepted: one")
    _check(record, spec_key(objects[0]), "QueueSpec")
    return objects[0]


def workload_of(record: Record) -> QueueWorkload:
    """Decode a workload; raise BadMessageError if it is invalid, or its key names another."""
    found = decode(record.value, QueueWorkload)
    _check(record, found.uid, "QueueWorkload")
    if found.workload.metadata.uid != found.uid:
        raise BadMessageError("QueueWorkload", f"metadata.uid is {found.workload.metadata.uid!r}, not {found.uid!r}")
    return found


def outcome_of(record: Record) -> QueueOutcome:
    """Decode an outcome of an admission; raise BadMessageError if it is invalid, or its key names another."""
    found = decode(record.value, QueueOutcome)
    _check(record, found.uid, "QueueOutcome")
    return found


def _check(record: Record, key: str, kind: str) -> None:
    if record.key != key.encode():
        raise BadMessageError(kind, f"the record's key is {text_of(record.key or b'')!r}, not {key!r}")
