"""Summarizes the cluster at a moment: evictions by rule, nodes under their guard, lag, dead letters, and credit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from slacktide.deploy.cli.records import dead_letter_row
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import NodeRow, PodEvent
from slacktide.deploy.runtime.text import instant
from slacktide.schemas.codec import decode
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import CREDIT
from slacktide.streams.decisions.evict.node_evict import observed
from slacktide.streams.explain.evidence import place_of

HOUR_MS = 3_600_000
DEAD_LETTERS_MAX = 10_000
STANDING = ("evicted_hour", "guarded_nodes", "lag_records", "letters_hour")
"""Cluster figures that are not sums over nodes."""


def standing(history: History, at_ms: int, rows: Sequence[NodeRow]) -> dict[str, Any]:
    """Return the figures, and evictions of the last hour by rule, most frequent first."""
    evicted = (decode(one.value, NodeOutcome) for one in history.evicted(at_ms - HOUR_MS, at_ms))
    rules = Counter(one.rule for one in evicted)
    lags = [one.lag for one in history.lag_at(at_ms) if one.lag is not None]
    return {
        "evicted_hour": rules.total(),
        "guarded_nodes": sum(one.decided_by == "guard" for one in rows),
        "lag_records": sum(lags) if lags else None,
        "letters_hour": len(history.dead_letters(at_ms - HOUR_MS, at_ms, DEAD_LETTERS_MAX)),
        "by_rule": rules.most_common(),
    }


def standing_lines(history: History, at_ms: int, figure: str) -> Iterator[str]:
    """Explain a figure in lines: the records that it counts."""
    if figure == "evicted_hour":
        records = history.evicted(at_ms - HOUR_MS, at_ms)
        yield f"evicted_hour {len(records):,}: evictions from {instant(at_ms - HOUR_MS)} to {instant(at_ms)}"
        for record in reversed(records):
            act = decode(record.value, NodeOutcome)
            pod = "" if act.pod is None else f"{act.pod.namespace}/{act.pod.name}"
            yield f"  {instant(act.acted_ms)}  {pod} on {act.node}: {act.rule}, {observed(act.terms)}"
            yield f"      of: {place_of(record)}"
    elif figure == "guarded_nodes":
        rows = [one for one in history.cluster_at(at_ms) if one.decided_by == "guard"]
        yield f"guarded_nodes {len(rows):,} at {instant(at_ms)}: nodes whose last decision is from the guard"
        for row in rows:
            place = row.places.get("outcome")
            yield f"  {row.node:<24} {'' if place is None else f'{place[0]} {place[1]}:{place[2]}'}"
    elif figure == "lag_records":
        lags = history.lag_at(at_ms)
        total = sum(one.lag or 0 for one in lags)
        yield f"lag_records {total:,}: records that workers had not read at {instant(at_ms)}"
        for one in sorted(lags, key=lambda one: -(one.lag or 0)):
            end = "unknown" if one.end is None else f"{one.end:,}"
            where = f"{one.topic} {one.partition}"
            yield f"  {one.worker:<24} {where}: at {one.position:,} of {end}, {one.lag or 0:,} behind"
    else:
        dead_letters = history.dead_letters(at_ms - HOUR_MS, at_ms, DEAD_LETTERS_MAX)
        yield f"letters_hour {len(dead_letters):,}: dead letters from {instant(at_ms - HOUR_MS)} to {instant(at_ms)}"
        for dead_letter in dead_letters:
            _, _, origin, _, reader, reason = dead_letter_row(dead_letter)
            yield f"  {instant(dead_letter.timestamp_ms)}  {origin}, refused by {reader}: {reason}"
            yield f"      of: {place_of(dead_letter)}"


def credit_text(history: History, event: PodEvent) -> str:
    """Return the node's credit and its spent part, for an eviction; "": the event spends none."""
    act = event.body
    if not isinstance(act, NodeOutcome) or act.spent is None:
        return ""
    spent = f"credit: {act.spent.evictions:,} spent with this one"
    record = history.objects.one(event.at_ms, CREDIT, act.node.encode())
    if record is None:
        return spent
    lease = decode(record.value, EvictionCredit)
    if lease.boot_id != act.boot_id:
        return f"{spent}; the grant is from another boot, {place_of(record)}"
    return f"{spent}, {lease.granted:,} granted by {place_of(record)}"
