"""Builds an overview of nodes: one row each, with the worst of what ``explain node`` reports. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.suppress.cpu_suppress import measured
from slacktide.streams.explain.carried_out import last_limit
from slacktide.streams.explain.facts import WORST_FIRST, Severity
from slacktide.streams.explain.node import node_findings
from slacktide.streams.explain.node_log import NodeLog
from slacktide.streams.explain.placement import left_of

Sort = Literal["problem", "name", "used", "offered", "free", "age"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node's row; None: unknown."""

    node: str
    severity: Severity
    """That of the worst finding."""
    fact: str
    """The name of the worst finding; "": there is none worse than ok."""
    why: str
    """Its text."""
    age_ms: int | None
    """Time since the figures were published or covered by a heartbeat."""
    capacity_cpu_milli: int | None = None
    used_cpu_milli: int | None = None
    batch_cpu_milli: int | None = None
    """Allocatable batch CPU."""
    batch_free_cpu_milli: int | None = None
    """The part of it that no pod requests."""
    capacity_mem_bytes: int | None = None
    used_mem_bytes: int | None = None
    batch_mem_bytes: int | None = None
    batch_free_mem_bytes: int | None = None
    limits: Limits | None = None
    """The limits in force for best-effort pods."""
    policy_version: str = ""


def node_row(log: NodeLog, now_ms: int) -> NodeRow:
    """Build one node's row.

    Args:
        log: its latest figures, and its samples, commands and outcomes of the last seconds.
        now_ms: since the epoch.
    """
    metric, allocatable, facts = log.metric, log.allocatable, log.facts
    last = last_limit(log, now_ms)
    worst = next((one for one in node_findings(log, now_ms) if one.severity != "ok"), None)
    sold = None if allocatable is None else allocatable.body
    return NodeRow(
        node=log.node,
        severity="ok" if worst is None else worst.severity,
        fact="" if worst is None else worst.name,
        why="" if worst is None else worst.text,
        age_ms=None if metric is None else log.uncovered_ms(metric, now_ms),
        capacity_cpu_milli=None if facts is None else facts.capacity.cpu_milli,
        used_cpu_milli=None if metric is None else metric.body.node_use.cpu_milli,
        batch_cpu_milli=None if sold is None else sold.batch_cpu_milli,
        batch_free_cpu_milli=None if sold is None else left_of("batch_cpu_milli", sold.batch_cpu_milli, log),
        capacity_mem_bytes=None if facts is None else facts.capacity.mem_bytes,
        used_mem_bytes=None if metric is None else metric.body.node_use.mem_bytes,
        batch_mem_bytes=None if sold is None else sold.batch_mem_bytes,
        batch_free_mem_bytes=None if sold is None else left_of("batch_mem_bytes", sold.batch_mem_bytes, log),
        limits=None if last is None else measured(last.body.after),
        policy_version="" if last is None else last.body.policy_version,
    )


def in_order(rows: Iterable[NodeRow], by: Sort) -> list[NodeRow]:
    """Sort rows: largest or worst first, then by name."""
    return sorted(rows, key=lambda row: (_KEYS[by](row), row.node))


def _share(part: int | None, whole: int | None) -> float:
    return (part or 0) / whole if whole else 0.0


_KEYS: Mapping[Sort, Callable[[NodeRow], float]] = {
    "problem": lambda row: WORST_FIRST.index(row.severity),
    "name": lambda _: 0,
    "used": lambda row: -_share(row.used_cpu_milli, row.capacity_cpu_milli),
    "offered": lambda row: -(row.batch_cpu_milli or 0),
    "free": lambda row: -(row.batch_free_cpu_milli or 0),
    "age": lambda row: -(math.inf if row.age_ms is None else row.age_ms),
}
