"""That what is measured does the work: answers of a few nodes, read back from the log."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from bench import log
from bench.fleet import name_of
from bench.peers import reference
from bench.peers.answer import WINDOW_S
from bench.rig import CannotRunError
from bench.stamp import evenly
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import BEGIN
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.kafka import read_topic
from slacktide.streams.records import Record
from slacktide.streams.samples import SampleReader

NODES = tuple(name_of(number) for number in evenly(1)[:3])
ANSWERS = 200
"""Of each node, at most: its history and more than two windows."""


def peer(bootstrap: str, samples_topic: str, topic: str, begin: reference.Begin) -> str:
    """Compare a peer's first answers with the plain reference.

    Args:
        bootstrap: the broker.
        samples_topic: what it reads, in either form.
        topic: its answers.
        begin: what its windows hold.

    Raises:
        CannotRunError: one differs, or lacks.

    """
    compared = 0
    for name in NODES:
        bodies = _values(bootstrap, samples_topic, name)[:ANSWERS]
        samples = samples_of(bodies)
        answers = _values(bootstrap, topic, name)[:ANSWERS]
        if len(answers) <= WINDOW_S:
            raise CannotRunError(f"{topic}: {name} has {len(answers)} answers to {len(samples)} samples")
        for raw, wanted in zip(answers, reference.answers(samples, begin), strict=False):
            if different := reference.difference(msgspec.json.decode(raw), wanted):
                raise CannotRunError(f"{topic}: {name} at {wanted['observed_ms']}: {different}")
            compared += 1
    return f"{compared} answers of {len(NODES)} nodes are the reference's"


def samples_of(bodies: Sequence[bytes]) -> list[NodeSample]:
    """Of one node, in either form."""
    reader = SampleReader()
    return [
        reader.read(Record(topic=SAMPLE.name, partition=0, offset=0, timestamp_ms=0, key=b"", value=body))
        if body.startswith(BEGIN)
        else decode(body, NodeSample)
        for body in bodies
    ]


def ours(bootstrap: str) -> str:
    """See that the worker decided every sample, in order, and published NodeMetric.

    Raises:
        CannotRunError: an answer was skipped or lacks, or figures do.

    """
    answered = figures = 0
    for name in NODES:
        commands = log.commands(bootstrap, name)
        if [one.seq for one in commands] != list(range(1, len(commands) + 1)):
            raise CannotRunError(f"{name}: answers lack or are out of order")
        if skipped := [one for one in commands if one.answer == "skipped"]:
            raise CannotRunError(f"{name}: {len(skipped)} samples were skipped: {skipped[0].reason}")
        metrics = log.metrics(bootstrap, name)
        if not metrics or not metrics[-1].pods:
            raise CannotRunError(f"{name}: {len(metrics)} NodeMetric, no pods in the last one")
        answered, figures = answered + len(commands), figures + len(metrics)
    return f"{answered} samples of {len(NODES)} nodes decided in order, {figures} NodeMetric"


def _values(bootstrap: str, topic: str, key: str) -> list[bytes]:
    async def read() -> list[bytes]:
        async with aclosing(read_topic(Cluster(bootstrap), topic, key=key)) as records:
            return [record.value async for record in records if record.value is not None]

    return asyncio.run(read())
