"""A recorded trace as it had been if its agents had written samples in columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import COMMAND, SAMPLE, SAMPLE_COLUMNS
from slacktide.streams.records import Record


def in_columns(records: Iterable[Record]) -> list[Record]:
    """The same at the same places, but samples and answers name the topic of columns."""
    lists: dict[tuple[str, str], Sequence[Pod]] = {}
    return [_changed(record, lists) for record in records]


def _changed(record: Record, lists: dict[tuple[str, str], Sequence[Pod]]) -> Record:
    if record.value is None or record.topic not in {SAMPLE.name, COMMAND.name}:
        return record
    try:
        if record.topic == COMMAND.name:
            command = decode(record.value, NodeCommand)
            if command.sample is None:
                return record
            origin = msgspec.structs.replace(command.sample, topic=SAMPLE_COLUMNS.name)
            return msgspec.structs.replace(record, value=encode(msgspec.structs.replace(command, sample=origin)))
        sample = decode(record.value, NodeSample)
    except BadMessageError:
        return record
    if sample.pods is not None:
        lists[sample.node, sample.pods_revision] = sample.pods
    pods = lists.get((sample.node, sample.pods_revision))
    value = record.value if pods is None else encoded(sample, pods)
    return msgspec.structs.replace(record, topic=SAMPLE_COLUMNS.name, value=value)
