"""Why a node sells no batch resource, or no more of it: disabled, nothing left, stale, capped, floored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy.effective import effective
from slacktide.schemas.policy.idle import lacking
from slacktide.schemas.policy.paths import key_of, path_of
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.known_pods import LOW_CLASSES
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.figures import Figure
from slacktide.streams.explain.node_log import NodeLog

USERS_TOLD = 3
_NAMES = {
    "batch_cpu_milli": "batch-cpu",
    "batch_mem_bytes": "batch-memory",
    "mid_cpu_milli": "mid-cpu",
    "mid_mem_bytes": "mid-memory",
}
_ADVICE = {
    "margin": "colocation-config keeps that much of the node back: raise {reclaim}",
    "system_or_reserved": "what no pod accounts for, or what is reserved for it, fills the node",
    "high_priority": "latency-sensitive pods use it, or asked for it: batch work waits until they leave something",
    "cap": "colocation-config caps it: raise {cap}",
}
_FIELDS = {
    "milli": {"reclaim": "cpu_reclaim_threshold_pct", "cap": "batch_cpu_threshold_pct"},
    "bytes": {"reclaim": "mem_reclaim_threshold_pct", "cap": "batch_mem_threshold_pct"},
}


def resource_name(field: str) -> str:
    """As in a pod's requests, without its domain: ``batch-cpu``; others are named by their field."""
    return _NAMES.get(field, field)


def amount(value: float | None, field: str) -> str:
    """With its unit, which is the end of the name."""
    if value is None:
        return "none"
    if field.endswith("bytes"):
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:,.0f}m" if field.endswith("milli") else f"{value:g}"


def selling_findings(log: NodeLog, told: Sequence[Figure]) -> Iterator[Finding]:
    """One for each thing that keeps a figure from being larger than nothing, or that moved it."""
    off = disabled(log)
    if off is not None:
        yield off
    if log.allocatable is None:
        if log.metric is not None:
            yield Finding(name="batch.absent", severity="problem", text="no allocatable is published for the node")
        return
    body = log.allocatable.body
    if body.stale_ms:
        yield _stale(body)
    elif off is None and (body.reason or body.batch_cpu_milli is None):
        yield _none(body)
    for figure in told:
        yield from _figure(figure, log)


def disabled(log: NodeLog) -> Finding | None:
    """Whether the policy keeps the node from selling batch resources, and which field says so."""
    if log.policy is None or log.facts is None:
        return None
    found = effective(log.policy.body, log.facts)
    why = next(why for feature, why in lacking(found).items() if feature.name == "BatchResource")
    if not why:
        return None
    said = f"{key_of('colocation')}: {why} ({found.source('colocation.enable')})"
    return Finding(
        name="batch.disabled",
        severity="problem",
        text=f"batch resources are disabled by policy {log.policy.body.version}: {said}",
        advice=f"set {path_of('colocation', 'enable')} to true; `slacktide policy effective` tells what holds there",
    )


def _stale(body: NodeAllocatable) -> Finding:
    return Finding(
        name="batch.stale",
        severity="problem",
        text=f"nothing new is placed there: the node had been silent for {body.stale_ms / 1000:.1f} s when batch "
        f"resources were taken down to what running pods asked for (batch-cpu {amount(body.batch_cpu_milli, 'milli')})",
        advice="they come back with its samples",
    )


def _none(body: NodeAllocatable) -> Finding:
    kept = "" if body.batch_cpu_milli is None else ", but for what running pods asked for"
    text = f"no batch resources are published{kept}: {body.reason or 'no reason is given'}"
    return Finding(name="batch.none", severity="problem", text=text)


def _figure(figure: Figure, log: NodeLog) -> Iterator[Finding]:
    name, because = resource_name(figure.of), figure.because
    if because is not None and figure.of.startswith("batch"):
        if figure.emptied_by:
            yield _emptied(figure, because, log)
        elif because.bound == "capped":
            cap = next(value for term, value in because.terms.items() if term.startswith("cap_"))
            text = f"{name} is capped at {amount(cap, figure.of)}: {_said(because)}"
            yield Finding(name="batch.capped", severity="note", text=text)
    if figure.floored:
        text = f"{name} stands at {amount(figure.published, figure.of)}, what running pods asked for: without them less"
        yield Finding(name="batch.floored", severity="note", text=text, advice="nothing new is placed by it")


def _emptied(figure: Figure, because: Because, log: NodeLog) -> Finding:
    stem, _, unit = figure.emptied_by.rpartition("_")
    paths = {name: path_of("colocation", field) for name, field in _FIELDS[unit].items()}
    who = _users(log, figure.of) if stem == "high_priority" else ""
    zero = f"{resource_name(figure.of)} {'would be' if figure.floored else 'is'} 0"
    return Finding(
        name="batch.exhausted",
        severity="problem",
        text=f"{zero}: {figure.emptied_by} leaves nothing: {_said(because)}{who}",
        advice=_ADVICE[stem].format(**paths),
    )


def _said(because: Because) -> str:
    """The sum on one line."""
    parts = [f"{part[0]} {part[1:]} {amount(because.terms[part[1:]], part)}" for part in because.adds]
    return " ".join(parts).removeprefix("+ ")


def _users(log: NodeLog, of: str) -> str:
    """Who of the pods that come before batch uses most of it."""
    if log.metric is None:
        return ""
    field = of.partition("_")[2]
    high = [one for one in log.metric.body.pods if one.priority_class not in LOW_CLASSES]
    high.sort(key=lambda one: (-getattr(one.use, field), one.uid))
    named = [f"{_pod(log.metric.body, one.uid)} {amount(getattr(one.use, field), of)}" for one in high[:USERS_TOLD]]
    return f"; most by {', '.join(named)}" if named else ""


def _pod(metric: NodeMetric, uid: str) -> str:
    one = next(pod for pod in metric.pods if pod.uid == uid)
    return f"{one.namespace}/{one.name}" if one.name else f"pod {uid}"
