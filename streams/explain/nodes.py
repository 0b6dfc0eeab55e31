"""Builds an overview of nodes: one row each, with problems. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.suppress.cpu_suppress import measured
from slacktide.streams.explain.carried_out import SUSPEND
from slacktide.streams.explain.evidence import Logged, Severity
from slacktide.streams.explain.node_log import NodeLog
from slacktide.streams.explain.selling import DRY_RUN, sells_nothing

SILENT_MS = 45_000
"""Figures are published or covered at least every 30 s, heartbeats sent every few seconds."""
Sort = Literal["problem", "name", "used", "offered", "age"]
_WORST_FIRST = tuple(reversed(get_args(Severity)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node's row; None: unknown."""

    node: str
    severity: Severity
    why: str
    """Problems; "": none."""
    age_ms: int | None
    """Time since the figures were published or covered by a heartbeat."""
    capacity_cpu_milli: int | None = None
    used_cpu_milli: int | None = None
    batch_cpu_milli: int | None = None
    """Allocatable batch CPU."""
    capacity_mem_bytes: int | None = None
    used_mem_bytes: int | None = None
    batch_mem_bytes: int | None = None
    limits: Limits | None = None
    """The limits in force for best-effort pods."""
    policy_version: str = ""


def node_row(log: NodeLog, now_ms: int) -> NodeRow:
    """Build one node's row.

    Args:
        log: its latest figures, and its outcomes of the last seconds.
        now_ms: since the epoch.
    """
    metric, allocatable, facts = log.metric, log.allocatable, log.facts
    limits = [one for one in log.outcomes if one.body.about_limit and one.body.result != "refused"]
    last = limits[-1] if limits else None
    age_ms = None if metric is None else log.uncovered_ms(metric, now_ms)
    severity, why = next(_troubles(log, age_ms, last), ("ok", ""))
    return NodeRow(
        node=log.node,
        severity=severity,
        why=why,
        age_ms=age_ms,
        capacity_cpu_milli=None if facts is None else facts.capacity.cpu_milli,
        used_cpu_milli=None if metric is None else metric.body.node_use.cpu_milli,
        batch_cpu_milli=None if allocatable is None else allocatable.body.batch_cpu_milli,
        capacity_mem_bytes=None if facts is None else facts.capacity.mem_bytes,
        used_mem_bytes=None if metric is None else metric.body.node_use.mem_bytes,
        batch_mem_bytes=None if allocatable is None else allocatable.body.batch_mem_bytes,
        limits=None if last is None else measured(last.body.after),
        policy_version="" if last is None else last.body.policy_version,
    )


def _troubles(log: NodeLog, age_ms: int | None, last: Logged[NodeOutcome] | None) -> Iterator[tuple[Severity, str]]:
    """Report problems, root causes first."""
    if log.metric is None or age_ms is None:
        yield "problem", "no figures: no agent runs on the node, or no worker reads its samples"
    elif log.metric.body.stale_ms:
        yield "problem", f"silent: no sample for {log.metric.body.stale_ms / 1_000:.0f} s or longer"
    elif age_ms > SILENT_MS:
        yield "problem", "no worker has published its figures or covered them by a heartbeat"
    if last is None:
        yield "warning", "the agent has reported no outcome recently"
    else:
        yield from _of_limit(last.body)
    yield from _of_sale(None if log.allocatable is None else log.allocatable.body)
    if sells_nothing(log):
        yield "note", DRY_RUN


def _of_limit(last: NodeOutcome) -> Iterator[tuple[Severity, str]]:
    if last.rule == SUSPEND:
        yield "warning", last.reason
    elif last.result == "failed":
        yield "problem", f"the limit could not be set: {last.reason}"
    elif last.origin == "guard":
        yield "warning", f"the guard decides: {last.reason}"
    elif last.result == "dry-run":
        yield "note", "dry run: limits are computed but not applied"


def _of_sale(allocatable: NodeAllocatable | None) -> Iterator[tuple[Severity, str]]:
    if allocatable is None or allocatable.reason:
        yield "note", f"no batch resources: {('no figure' if allocatable is None else allocatable.reason)}"
    elif allocatable.degraded:
        yield "warning", "degraded: no recent measurement for longer than the policy allows"


def in_order(rows: Iterable[NodeRow], by: Sort) -> list[NodeRow]:
    """Sort rows: largest or worst first, then by name."""
    return sorted(rows, key=lambda row: (_KEYS[by](row), row.node))


def _share(part: int | None, whole: int | None) -> float:
    return (part or 0) / whole if whole else 0.0


_KEYS: Mapping[Sort, Callable[[NodeRow], float]] = {
    "problem": lambda row: _WORST_FIRST.index(row.severity),
    "name": lambda _: 0,
    "used": lambda row: -_share(row.used_cpu_milli, row.capacity_cpu_milli),
    "offered": lambda row: -(row.batch_cpu_milli or 0),
    "age": lambda row: -(math.inf if row.age_ms is None else row.age_ms),
}
