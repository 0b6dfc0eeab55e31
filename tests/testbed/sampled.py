"""Samples as agents sent them."""

from __future__ import annotations

from contextlib import aclosing
from typing import TypeVar, cast

from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.message import Message
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import UnknownPodsError
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.kafka import read_topic
from slacktide.streams.records import Record
from slacktide.streams.samples import SampleReader

M = TypeVar("M", bound=Message)


async def sampled(cluster: Cluster, key: str | None = None) -> list[NodeSample]:
    samples = SampleReader()
    async with aclosing(read_topic(cluster, SAMPLE.name, key=key)) as records:
        return [decoded(one, NodeSample, samples) async for one in records if one.value is not None]


def decoded(record: Record, kind: type[M], samples: SampleReader) -> M:
    """Read a message, a sample by the pod lists of those before it.

    A keyframe may be overtaken, or lost with its broker: a sample whose pod list no sample carried is without use by
    pod.
    """
    if kind is not NodeSample:
        return decode(record.value, kind)
    try:
        return cast("M", samples.read(record))
    except UnknownPodsError as exc:
        return cast("M", exc.sample)
