"""Samples as agents sent them."""

import asyncio
import time
from contextlib import aclosing
from typing import TypeVar, cast

from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.message import Message
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import UnknownPodsError
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.kafka import read_topic
from slacktide.streams.records import Record
from slacktide.streams.samples import SampleReader

M = TypeVar("M", bound=Message)


PATIENCE_S, AGAIN_S = 60.0, 0.2


async def sampled(cluster: Cluster, key: str | None = None) -> list[NodeSample]:
    """All samples; read anew where a busy machine answers later than a reader waits."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        samples = SampleReader()
        try:
            async with aclosing(read_topic(cluster, SAMPLE.name, key=key)) as records:
                return [decoded(one, NodeSample, samples) async for one in records if one.value is not None]
        except LogError:
            if time.monotonic() > until_s:
                raise
        await asyncio.sleep(AGAIN_S)


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
