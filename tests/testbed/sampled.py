"""Samples as agents sent them, in either form."""

from __future__ import annotations

from contextlib import aclosing
from typing import TypeVar, cast

from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.message import Message
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import BEGIN, UnknownPodsError, to_sample
from slacktide.schemas.topics import SAMPLES
from slacktide.streams.kafka import read_topic
from slacktide.streams.rows import Rows

M = TypeVar("M", bound=Message)


async def sampled(cluster: Cluster, key: str | None = None) -> list[NodeSample]:
    rows, found = Rows(), []
    for topic in SAMPLES:
        async with aclosing(read_topic(cluster, topic.name, key=key)) as records:
            values = [rows.value(one.key, one.value) async for one in records if one.value is not None]
        found += [_decoded_sample(value) for value in values]
    return found


def decoded(value: bytes | None, kind: type[M]) -> M:
    """Read a message, which ``Rows`` has put into rows as far as it can.

    A keyframe may be overtaken, or lost with its broker: a sample in columns whose pod list no sample carried is
    without use by pod.
    """
    return cast("M", _decoded_sample(value)) if kind is NodeSample and value is not None else decode(value, kind)


def _decoded_sample(value: bytes) -> NodeSample:
    if not value.startswith(BEGIN):
        return decode(value, NodeSample)
    try:
        return to_sample(value, lambda _: None)
    except UnknownPodsError as exc:
        return NodeSample(**exc.fields | {"facts": None, "pods": None})
