"""Explains a number on a page in lines, as ``slacktide explain`` does: by its arithmetic, or the records it counts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from slacktide.deploy.cli.explain.node_text import node_text
from slacktide.deploy.cli.queue.topics import AMOUNTS, amount_text
from slacktide.deploy.cli.queue.topics import standing as queues_of
from slacktide.deploy.cli.records import dead_letter_row
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import NONE, NodeRow
from slacktide.deploy.console.services import service_lines
from slacktide.deploy.console.workloads import job_lines, pod_lines, shown
from slacktide.deploy.runtime.text import count, instant
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import CaseError
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.analysis.explain.evidence import place_of
from slacktide.streams.decisions.evict.node_evict import observed
from slacktide.streams.decisions.queue.cluster_objects import queue_cluster
from slacktide.streams.decisions.queue.quota_tree import FlavorResource
from slacktide.streams.queue.projection import objects_of
from slacktide.streams.records import Record, text_of

POINTS = 600
COUNTED = {"cuts": "command", "raises": "command", "bursts": "sample", "evictions": "outcome", "guarded": "outcome"}
"""A node's counts over a span, with the topic of their records."""
P95 = "decided_p95_ms"
_SOURCES = {
    "sold_cpu_milli": "allocatable", "sold_mem_bytes": "allocatable", "requested_cpu_milli": "score",
    "requested_mem_bytes": "score", "decided_ms": "outcome", **COUNTED,
}  # fmt: skip
"""The record of a figure, if it is not the sample."""
HOUR_MS = 3_600_000
DEAD_LETTERS_MAX = 10_000
STANDING = ("evicted_hour", "guarded_nodes", "lag_records", "letters_hour")
"""Cluster figures that are not sums over nodes."""


def explained(
    history: History, at_ms: int, given: Mapping[str, str], others: Sequence[Record] = ()
) -> list[str] | None:
    """Explain one number in lines; None: the history has no record of it.

    ``given`` has ``node``, ``pod``, ``job``, ``service``, ``topic`` or ``queue``, or none for a sum over all nodes.
    ``figure`` names the number. With a node it also has ``span`` for counts, or ``shadow`` for the shadow policy.
    """
    figure = given.get("figure", "")
    lines: Iterable[str]
    if pod := given.get("pod"):
        lines = pod_lines(history, pod, at_ms, figure, others)
    elif job := given.get("job"):
        lines = job_lines(history, job, at_ms, figure)
    elif service := given.get("service"):
        lines = service_lines(history, service, at_ms)
    elif topic := given.get("topic"):
        lines = _topic_lines(history, topic, at_ms)
    elif queue := given.get("queue"):
        lines = _queue_lines(history, queue, at_ms)
    elif given.get("node"):
        lines = _node_lines(history, at_ms, given, others)
    elif figure in STANDING:
        lines = _standing_lines(history, at_ms, figure)
    else:
        lines = _sum(history.cluster_at(at_ms), figure)
    return list(lines) or None


def _node_lines(history: History, at_ms: int, given: Mapping[str, str], others: Sequence[Record]) -> Iterator[str]:
    """Yield the figure as displayed with its record, then the text of ``slacktide explain node``."""
    node, figure = given["node"], given.get("figure", "")
    if given.get("span"):
        with suppress(KeyError):  # no such node
            yield from _span_lines(history, node, figure, at_ms, int(given["span"]))
        return
    moment, shadow = history.end_ms(node, at_ms), bool(given.get("shadow"))
    decision = history.decisions.shadow_at(node, moment) if shadow else history.decisions.at(node, moment, others)
    if decision is None:
        return
    if not shadow and (row := history.row_at(node, at_ms)) is not None:
        value, place = getattr(row, figure, None), _place(row, figure)
        if figure not in NodeRow.__slots__:
            column = history.node_series(node, row.at_ms, row.at_ms + 1_000, 1).columns.get(figure)
            value = None if not column or column[-1] == NONE else column[-1]
        if isinstance(value, int) and place:
            yield f"{figure} {shown(value, figure)} at {instant(row.at_ms)}, of {place}"
        if place not in {str(place_of(one)) for one in decision.records}:
            then = instant(decision.explanation.asked_ms)
            yield f"neither the history nor Kafka contains that record any more; the following is from {then}"
        yield ""
    yield from node_text(decision.explanation).split("\n")


def _place(row: NodeRow, figure: str) -> str:
    place = row.places.get(_SOURCES.get(figure, "sample"))
    return "" if place is None else f"{place[0]} {place[1]}:{place[2]}"


def _sum(rows: Sequence[NodeRow], figure: str) -> Iterator[str]:
    """Explain a sum over all nodes, each with its record, largest first."""
    known = [(value, row) for row in rows if isinstance(value := getattr(row, figure, None), int)]
    if not known:
        return
    without = len(rows) - len(known)
    lacks = f"; {count(without, 'node')} without a value" if without else ""
    yield f"{figure}: the sum of {count(len(known), 'node')} at {instant(known[0][1].at_ms)}{lacks}"
    for value, row in sorted(known, key=lambda one: (-one[0], one[1].node)):
        yield f"  + {row.node:<24} {shown(value, figure):>14}  {_place(row, figure)}"
    yield f"  = {figure} {shown(sum(value for value, _ in known), figure)}"


def _span_lines(history: History, node: str, figure: str, at_ms: int, span_ms: int) -> Iterator[str]:
    """Explain one of ``COUNTED``, or ``P95``, over a span: each point with its last record. Raises KeyError."""
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


def _topic_lines(history: History, topic: str, at_ms: int) -> Iterator[str]:
    """Report a topic's records of the last minute, and its newest offsets."""
    found = next((one for one in history.topics_at(at_ms) if one.topic == topic), None)
    if found is None:
        return
    yield f"records {found.records:,}: read from {topic} in the last whole minute before {instant(at_ms)}"
    yield f"newest_offset {found.newest_offset:,}: the sum over partitions, as stored now"
    for partition, following in history.cursors(topic):
        yield f"  + {topic} {partition}: {following:,}"


def _queue_lines(history: History, name: str, at_ms: int) -> Iterator[str]:
    """Explain a row of ``slacktide queue status``: workloads with quota and pending ones, each with its record."""
    records = history.objects.held(at_ms, QUEUE_SPEC, QUEUE_WORKLOAD, QUEUE_STATE).records
    objects = objects_of(records)
    try:
        cluster, queues = queue_cluster(objects), queues_of(objects).queues
    except CaseError as exc:
        yield str(exc)
        return
    row = next((one for one in queues if one.cluster_queue == name), None)
    if row is None:
        return
    places = {(one.topic, text_of(one.key or b"")): place_of(one) for one in records}

    def of(uid: str) -> str:
        return str(places.get((QUEUE_STATE.name, uid)) or places.get((QUEUE_WORKLOAD.name, uid)) or "")

    yield f"ClusterQueue {name} at {instant(at_ms)}"
    held = [one for one in cluster.holders if one.queue.name == name]
    for quota in row.quotas:
        amounts = {what: amount_text(quota.resource, getattr(quota, what)) for what in AMOUNTS}
        yield f"{quota.flavor}: {', '.join(f'{what} {text} {quota.resource}' for what, text in amounts.items())}"
        for one in held:
            if used := one.usage.get(FlavorResource(quota.flavor, quota.resource)):
                uid = one.queued.uid
                yield f"  + {cluster.names[uid]:<32} {amount_text(quota.resource, used):>12}  {of(uid)}"
    yield f"pending {row.pending_count:,}, admitted {row.admitted_count:,}, evicting {row.evicting_count:,}"
    waiting = (one.uid for one in cluster.waiting if one.queue == name)
    yield from (f"    {cluster.names[uid]:<32} waits  {of(uid)}" for uid in waiting)


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


def _standing_lines(history: History, at_ms: int, figure: str) -> Iterator[str]:
    """List the records that one of the figures counts."""
    span = f"from {instant(at_ms - HOUR_MS)} to {instant(at_ms)}"
    if figure == "evicted_hour":
        records = history.evicted(at_ms - HOUR_MS, at_ms)
        yield f"evicted_hour {len(records):,}: evictions {span}"
        for record in reversed(records):
            act = decode(record.value, NodeOutcome)
            pod = "" if act.pod is None else f"{act.pod.namespace}/{act.pod.name}"
            yield f"  {instant(act.acted_ms)}  {pod} on {act.node}: {act.rule}, {observed(act.terms)}"
            yield f"      of: {place_of(record)}"
    elif figure == "guarded_nodes":
        rows = [one for one in history.cluster_at(at_ms) if one.decided_by == "guard"]
        yield f"guarded_nodes {len(rows):,} at {instant(at_ms)}: nodes whose last decision is from the guard"
        yield from (f"  {row.node:<24} {_place(row, 'decided_ms')}" for row in rows)
    elif figure == "lag_records":
        lags = history.lag_at(at_ms)
        total = sum(one.lag or 0 for one in lags)
        yield f"lag_records {total:,}: records that workers had not read at {instant(at_ms)}"
        for one in sorted(lags, key=lambda one: -(one.lag or 0)):
            end = "unknown" if one.end is None else f"{one.end:,}"
            behind = f"at {one.position:,} of {end}, {one.lag or 0:,} behind"
            yield f"  {one.worker:<24} {one.topic} {one.partition}: {behind}"
    else:
        dead_letters = history.dead_letters(at_ms - HOUR_MS, at_ms, DEAD_LETTERS_MAX)
        yield f"letters_hour {len(dead_letters):,}: dead letters {span}"
        for dead_letter in dead_letters:
            _, _, origin, _, reader, reason = dead_letter_row(dead_letter)
            yield f"  {instant(dead_letter.timestamp_ms)}  {origin}, refused by {reader}: {reason}"
            yield f"      of: {place_of(dead_letter)}"
