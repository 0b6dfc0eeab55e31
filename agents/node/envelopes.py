"""What a node agent sends: bodies with their headers, and what it lays aside of records that it cannot use."""

from __future__ import annotations

from slacktide.schemas.codec import encode
from slacktide.schemas.headers import headers
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import BACKFILL, OUTCOME, SAMPLE
from slacktide.streams.records import Out, Record, dead_letter, dead_letter_of_refused


def of_sample(sample: NodeSample) -> Out:
    """A sample on its way to the stream, which answers it."""
    return _of_sample(sample, SAMPLE.name)


def of_history(sample: NodeSample) -> Out:
    """A sample that comes too late to be answered: it only fills windows."""
    return _of_sample(sample, BACKFILL.name)


def _of_sample(sample: NodeSample, topic: str) -> Out:
    which = f"{sample.boot_id}/{sample.seq}"
    return _out(topic, sample.node, sample, which, sample.observed_ms, f"{sample.node}/{which}")


def of_outcome(outcome: NodeOutcome) -> Out:
    """An outcome on its way to whoever wants to know; in the trace of the sample that led to it."""
    which = f"{outcome.boot_id}/{outcome.seq}"
    event_id = f"{which}/{outcome.command_id}/{outcome.result}/{outcome.acted_ms}"
    return _out(OUTCOME.name, outcome.node, outcome, event_id, outcome.acted_ms, f"{outcome.node}/{which}")


def of_dead_letter(record: Record, *, node: str, reason: str, now_ms: int) -> Out:
    """A record that this node cannot use, with where it came from; never itself too large to be sent."""
    return dead_letter(record, reader=f"agent/{node}", reason=reason, now_ms=now_ms)


def of_refused(out: Out, *, node: str, reason: str, now_ms: int) -> Out:
    """A record of this node that Kafka refuses for its size or content."""
    return dead_letter_of_refused(out, writer=f"agent/{node}", reason=reason, now_ms=now_ms)


def _out(topic: str, node: str, body: Message, event_id: str, event_ms: int, trace: str) -> Out:
    return Out(
        topic=topic,
        key=node.encode(),
        value=encode(body),
        headers=headers(
            kind=topic, source=f"agent/{node}", subject=node, event_id=event_id, event_ms=event_ms, trace=trace
        ),
    )
