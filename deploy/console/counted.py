"""Explains counts: of a node over a span, of a topic per minute, of a ClusterQueue."""

from __future__ import annotations

from collections.abc import Iterator

from slacktide.deploy.cli.queue.standing import amount_text
from slacktide.deploy.console.amounts import shown
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import NONE
from slacktide.deploy.runtime.text import instant
from slacktide.schemas.errors import CaseError
from slacktide.schemas.topics import QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.decisions.queue.cluster_objects import queue_cluster
from slacktide.streams.explain.evidence import place_of
from slacktide.streams.queue.projection import objects_of

POINTS = 600
COUNTED = {"cuts": "command", "raises": "command", "bursts": "sample", "evictions": "outcome", "guarded": "outcome"}
"""A node's counts over a span, with the topic of their records."""
P95 = "decided_p95_ms"


def span_lines(history: History, node: str, figure: str, at_ms: int, span_ms: int) -> Iterator[str]:
    """Explain one of ``COUNTED``, or ``P95``, over the span before a moment: each point with its last record.

    Raises:
        KeyError: no such node.
    """
    if figure not in {*COUNTED, P95}:
        return
    series = history.node_series(node, at_ms - span_ms, at_ms, POINTS)
    kind, column = COUNTED.get(figure, "outcome"), "decided_ms" if figure == P95 else figure
    values = series.columns[column]
    known = [at for at, value in enumerate(values) if (value != NONE if figure == P95 else value > 0)]
    ordered = sorted(values[at] for at in known)
    total = (ordered[(len(ordered) - 1) * 95 // 100] if ordered else 0) if figure == P95 else sum(ordered)
    what = f"{'the 95th percentile' if figure == P95 else 'the sum'} of {len(known):,} points"
    span = f"from {instant(at_ms - span_ms)} to {instant(at_ms)}"
    yield f"{figure} {shown(total, figure)}: {what} of {series.step_ms // 1_000} s {span}"
    row = history.row_at(node, at_ms)
    place = None if row is None else row.places.get(kind)
    for at in reversed(known):
        offset = series.columns[f"{kind}_offset"][at]
        where = "" if place is None or offset == NONE else f"  up to {place[0]} {place[1]}:{offset}"
        yield f"  {instant(series.at_ms[at])}  {shown(values[at], figure):>6}{where}"


def topic_lines(history: History, topic: str, at_ms: int) -> Iterator[str]:
    """Report a topic's records of the last minute, and its newest offsets."""
    found = next((one for one in history.topics_at(at_ms) if one.topic == topic), None)
    if found is None:
        return
    yield f"records {found.records:,}: read from {topic} in the last whole minute before {instant(at_ms)}"
    yield f"newest_offset {found.newest_offset:,}: the sum over partitions, as stored now"
    for partition, following in history.cursors(topic):
        yield f"  + {topic} {partition}: {following:,}"


def queue_lines(history: History, name: str, at_ms: int) -> Iterator[str]:
    """List workloads that hold quota of a ClusterQueue or are pending in it, each with its record."""
    records = history.objects.held(at_ms, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE).records
    try:
        cluster = queue_cluster(objects_of(records))
    except CaseError as exc:
        yield str(exc)
        return
    places = {(one.topic, (one.key or b"").decode()): place_of(one) for one in records}

    def of(uid: str) -> str:
        return str(places.get((QUEUE_STATE.name, uid)) or places.get((QUEUE_WORKLOAD.name, uid)) or "")

    queue = next((one for one in cluster.queues if one.node.name == name), None)
    if queue is None:
        return
    yield f"ClusterQueue {name} at {instant(at_ms)}"
    held = [one for one in cluster.holders if one.queue.name == name]
    for flavor, quota in sorted(queue.node.quotas.items()):
        used = sum(one.usage.get(flavor, 0) for one in held)
        amounts = {"nominal": quota.nominal, "used": used, "borrowed": max(0, used - quota.nominal)}
        texts = (f"{what} {amount_text(flavor.resource, one)} {flavor.resource}" for what, one in amounts.items())
        yield f"{flavor.flavor}: {', '.join(texts)}"
        for one in held:
            if one.usage.get(flavor):
                uid = one.queued.uid
                yield f"  + {cluster.names[uid]:<32} {amount_text(flavor.resource, one.usage[flavor]):>12}  {of(uid)}"
    waiting = [one.uid for one in cluster.waiting if one.queue == name]
    ending = sum(one.queued.evicted is not None and one.queued.evicted.status for one in held)
    yield f"pending {len(waiting):,}, admitted {len(held):,}, evicting {ending:,}"
    yield from (f"    {cluster.names[uid]:<32} waits  {of(uid)}" for uid in waiting)
