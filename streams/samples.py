"""Decodes samples for readers other than workers. Pure."""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence

from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import to_sample
from slacktide.streams.records import Record

LISTS_KEPT = 4
"""Pod lists kept per node, for duplicates of older samples."""


class SampleReader:
    """Keeps the pod lists of samples, for later samples that refer to them."""

    def __init__(self) -> None:
        self._lists: defaultdict[bytes | None, OrderedDict[str, Sequence[str]]] = defaultdict(OrderedDict)
        self._names: dict[bytes | None, dict[str, str]] = {}

    def read(self, record: Record) -> NodeSample:
        """Decode a record's sample.

        Raises:
            UnknownPodsError: the sample's pod list is unknown.
            BadMessageError: a field is missing or invalid; the text has its path, value and range.
        """
        lists = self._lists[record.key]
        sample = to_sample(record.value, lists.get)
        if sample.pods is not None:
            lists[sample.pods_revision] = [pod.uid for pod in sample.pods]
            self._names[record.key] = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in sample.pods}
            while len(lists) > LISTS_KEPT:
                lists.popitem(last=False)
        return sample

    def names(self, record: Record) -> Mapping[str, str]:
        """Return namespace and name by pod uid, from the newest list of the record's node."""
        return self._names.get(record.key, {})
