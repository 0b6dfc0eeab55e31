"""Decodes samples in either encoding (columns or rows) to rows, for readers other than workers. Pure."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import BEGIN, to_sample
from slacktide.schemas.topics import SAMPLES
from slacktide.streams.records import Record

SAMPLE_NAMES = frozenset(topic.name for topic in SAMPLES)
LISTS_KEPT = 4
"""Pod lists kept per node, for duplicates of older samples."""


class Rows:
    """Keeps pod lists from samples in columns, for later samples that refer to them."""

    def __init__(self) -> None:
        self._lists: defaultdict[bytes | None, OrderedDict[str, Sequence[str]]] = defaultdict(OrderedDict)
        self._names: dict[bytes | None, dict[str, str]] = {}

    def of(self, record: Record) -> Record:
        """Return the record with its sample in rows; unchanged if it is in rows, or its list is unknown."""
        value = record.value
        if value is None or (in_rows := self.value(record.key, value)) is value:
            return record
        return msgspec.structs.replace(record, value=in_rows)

    def value(self, key: bytes | None, value: bytes) -> bytes:
        """Return a record's value with its sample in rows, like ``of``."""
        if not value.startswith(BEGIN):
            return value
        try:
            return encode(self._sample(key, value))
        except BadMessageError:
            return value

    def sample(self, record: Record) -> NodeSample:
        """Decode a record's sample, in either encoding.

        Raises:
            UnknownPodsError: the sample's pod list is unknown.
            BadMessageError: a field is missing or invalid; the text has its path, value and range.
        """
        value = record.value
        if value is not None and value.startswith(BEGIN):
            return self._sample(record.key, value)
        sample: NodeSample = decode(value, NodeSample)
        return sample

    def all(self, records: Iterable[Record]) -> list[Record]:
        """Convert all records, in order."""
        return [self.of(record) for record in records]

    def names(self, record: Record) -> Mapping[str, str]:
        """Return namespace and name by pod uid, from the newest list of the record's node."""
        return self._names.get(record.key, {})

    def _sample(self, key: bytes | None, value: bytes) -> NodeSample:
        lists = self._lists[key]
        sample = to_sample(value, lists.get)
        if sample.pods is not None:
            lists[sample.pods_revision] = [pod.uid for pod in sample.pods]
            self._names[key] = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in sample.pods}
            while len(lists) > LISTS_KEPT:
                lists.popitem(last=False)
        return sample
