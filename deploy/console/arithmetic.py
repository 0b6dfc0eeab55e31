"""Explains a number on a page, as ``slacktide explain`` does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from slacktide.deploy.cli.explain.node_text import node_text
from slacktide.deploy.cli.queue.topics import amount_text
from slacktide.deploy.console.amounts import shown
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.view import NONE, Decision, NodeRow
from slacktide.deploy.console.jobs import job_lines, job_of
from slacktide.deploy.console.pods import pod_lines
from slacktide.deploy.console.standing import STANDING, standing_lines
from slacktide.deploy.runtime.text import count, instant
from slacktide.schemas.errors import CaseError
from slacktide.schemas.topics import QUEUE_SPEC, QUEUE_STATE, QUEUE_WORKLOAD
from slacktide.streams.decisions.queue.cluster_objects import queue_cluster
from slacktide.streams.explain.evidence import place_of
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


def explained(
    history: History, at_ms: int, given: Mapping[str, str], others: Sequence[Record] = ()
) -> list[str] | None:
    """Explain one number in lines; None: the history has no record of it.

    ``given`` has ``node``, ``pod``, ``job``, ``topic`` or ``queue``, or none for a sum over all nodes. ``figure``
    names the number. With a node it also has ``span`` for counts, or ``shadow`` for the shadow policy.
    """
    figure = given.get("figure", "")
    lines: Iterable[str]
    if pod := given.get("pod"):
        lines = pod_lines(history, pod, at_ms, figure, others)
    elif name := given.get("job"):
        job = job_of(history, name, at_ms)
        lines = () if job is None else job_lines(job, figure)
    elif topic := given.get("topic"):
        lines = topic_lines(history, topic, at_ms)
    elif queue := given.get("queue"):
        lines = queue_lines(history, queue, at_ms)
    elif given.get("node"):
        lines = _node_lines(history, at_ms, given, others)
    elif figure in STANDING:
        lines = standing_lines(history, at_ms, figure)
    else:
        lines = _sum(history.cluster_at(at_ms), figure)
    return list(lines) or None


def _node_lines(history: History, at_ms: int, given: Mapping[str, str], others: Sequence[Record]) -> Iterator[str]:
    node, figure = given["node"], given.get("figure", "")
    if given.get("span"):
        with suppress(KeyError):  # no such node
            yield from span_lines(history, node, figure, at_ms, int(given["span"]))
        return
    moment = history.end_ms(node, at_ms)
    shadow = bool(given.get("shadow"))
    decision = history.decisions.shadow_at(node, moment) if shadow else history.decisions.at(node, moment, others)
    if decision is None:
        return
    row = None if shadow else history.row_at(node, at_ms)
    if row is not None:
        yield from (*_of_row(history, row, figure), *_kept(row, figure, decision), "")
    yield from node_text(decision.explanation).split("\n")


def _of_row(history: History, row: NodeRow, figure: str) -> Iterator[str]:
    """Return the figure as displayed, and its record."""
    value = getattr(row, figure, None)
    if figure not in NodeRow.__slots__:
        column = history.node_series(row.node, row.at_ms, row.at_ms + 1_000, 1).columns.get(figure)
        value = None if not column or column[-1] == NONE else column[-1]
    place = _place(row, figure)
    if isinstance(value, int) and place:
        yield f"{figure} {shown(value, figure)} at {instant(row.at_ms)}, of {place}"


def _kept(row: NodeRow, figure: str, decision: Decision) -> Iterator[str]:
    """Report that the record is no longer available, and that an older one is explained, with its time."""
    if _place(row, figure) not in {str(place_of(one)) for one in decision.records}:
        then = instant(decision.explanation.asked_ms)
        yield f"neither the history nor Kafka contains that record any more; the following is from {then}"


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


def span_lines(history: History, node: str, figure: str, at_ms: int, span_ms: int) -> Iterator[str]:
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
    places = {(one.topic, text_of(one.key or b"")): place_of(one) for one in records}

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
