"""Records that a node agent publishes, with headers, and its dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from slacktide.schemas.codec import encode
from slacktide.schemas.forecast import NodeForecast
from slacktide.schemas.headers import headers
from slacktide.schemas.inventory import Pod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import AUDIT, BACKFILL, FORECAST, OUTCOME, SAMPLE, ZONES
from slacktide.schemas.zones import NodeZones
from slacktide.streams.records import Out, Record, dead_letter, dead_letter_of_refused


def of_sample(sample: NodeSample, pods: Sequence[Pod]) -> Out:
    """Return a sample for the stream workers; ``pods``: the list that it refers to."""
    return _of_sample(sample, pods, SAMPLE.name)


def of_history(sample: NodeSample) -> Out:
    """Return a backfilled sample, which only fills windows. It names its pods, since workers may not know its list."""
    return _of_sample(sample, (), BACKFILL.name)


def _of_sample(sample: NodeSample, pods: Sequence[Pod], topic: str) -> Out:
    which = f"{sample.boot_id}/{sample.seq}"
    return _out(topic, sample.node, encoded(sample, pods), which, sample.observed_ms, f"{sample.node}/{which}")


def of_zones(zones: NodeZones) -> Out:
    """Return the node's NUMA zones, for the scheduler."""
    which = f"{zones.boot_id}/{zones.seq}"
    return _out(ZONES.name, zones.node, encode(zones), which, zones.observed_ms, f"{zones.node}/{which}")


def of_forecast(forecast: NodeForecast) -> Out:
    """Return the node's models, for the stream workers and the node's next agent."""
    which = f"{forecast.boot_id}/{forecast.seq}"
    return _out(FORECAST.name, forecast.node, encode(forecast), which, forecast.observed_ms, f"{forecast.node}/{which}")


def of_outcome(outcome: NodeOutcome) -> Out:
    """Return an outcome, in the trace of the sample that led to it."""
    return _of_outcome(outcome, OUTCOME.name)


def of_audit(outcome: NodeOutcome) -> Out:
    """Return an outcome for the audit topic, which keeps it for longer."""
    return _of_outcome(outcome, AUDIT.name)


def _of_outcome(outcome: NodeOutcome, topic: str) -> Out:
    which = f"{outcome.boot_id}/{outcome.seq}"
    event_id = f"{which}/{outcome.command_id}/{outcome.result}/{outcome.acted_ms}"
    return _out(topic, outcome.node, encode(outcome), event_id, outcome.acted_ms, f"{outcome.node}/{which}")


def of_dead_letter(record: Record, *, node: str, reason: str, now_ms: int) -> Out:
    """Return a dead letter for a record that this node cannot use. It is never too large."""
    return dead_letter(record, reader=f"agent/{node}", reason=reason, now_ms=now_ms)


def of_refused(out: Out, *, node: str, reason: str, now_ms: int) -> Out:
    """Return a dead letter for a record of this node that Kafka refused."""
    return dead_letter_of_refused(out, writer=f"agent/{node}", reason=reason, now_ms=now_ms)


def _out(topic: str, node: str, body: bytes, event_id: str, event_ms: int, trace: str) -> Out:
    return Out(
        topic=topic,
        key=node.encode(),
        value=body,
        headers=headers(
            kind=topic, source=f"agent/{node}", subject=node, event_id=event_id, event_ms=event_ms, trace=trace
        ),
    )
