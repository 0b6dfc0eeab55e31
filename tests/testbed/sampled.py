"""Samples as agents sent them, in either form."""

from __future__ import annotations

from contextlib import aclosing

from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import BEGIN, UnknownPodsError, to_sample
from slacktide.schemas.topics import SAMPLES
from slacktide.streams.kafka import read_topic
from slacktide.streams.rows import Rows


async def sampled(cluster: Cluster, key: str | None = None) -> list[NodeSample]:
    """All live samples, those of each form in order; of one node if named."""
    rows, found = Rows(), []
    for topic in SAMPLES:
        async with aclosing(read_topic(cluster, topic.name, key=key)) as records:
            found += [decoded_sample(rows.value(one.key, one.value)) async for one in records if one.value is not None]
    return found


def decoded_sample(value: bytes) -> NodeSample:
    """Read a sample; one in columns whose pod list no sample carried is without use by pod."""
    if not value.startswith(BEGIN):
        return decode(value, NodeSample)
    try:
        return to_sample(value, lambda _: None)
    except UnknownPodsError as exc:
        return NodeSample(**exc.fields | {"facts": None, "pods": None})
