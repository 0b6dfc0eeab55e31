"""CloudEvents binary mode headers, and one trace per sample."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

Headers = tuple[tuple[str, bytes], ...]


def headers(*, kind: str, source: str, subject: str, event_id: str, event_ms: int, trace: str = "") -> Headers:
    """Headers of one record.

    Args:
        kind: the topic's name, which is also the event's type.
        source: who wrote it, e.g. ``agent/node-1``.
        subject: the record's key.
        event_id: unique together with the source.
        event_ms: event time, UTC epoch milliseconds.
        trace: ``node/boot_id/seq`` of the sample behind it, so that one trace holds sample, answer and outcome.

    """
    when = datetime.fromtimestamp(event_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    lines = [
        ("ce_specversion", "1.0"),
        ("ce_id", event_id),
        ("ce_type", kind),
        ("ce_source", source),
        ("ce_subject", subject),
        ("ce_time", when),
        ("ce_dataschema", f"{kind}.json"),
        ("content-type", "application/json"),
    ]
    if trace:
        trace_id = hashlib.sha256(trace.encode()).hexdigest()[:32]
        span_id = hashlib.sha256(f"{kind}/{source}/{event_id}".encode()).hexdigest()[:16]
        lines.append(("traceparent", f"00-{trace_id}-{span_id}-01"))
    return tuple((name, text.encode()) for name, text in lines)
