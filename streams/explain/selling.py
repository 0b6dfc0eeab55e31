"""Explains low batch resources of a node: disabled, exhausted, stale, capped or floored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Pod
from slacktide.schemas.metric import NodeMetric, PodMetric
from slacktide.schemas.policy.configmap import key_of, path_of
from slacktide.schemas.policy.effective import colocation_on, effective
from slacktide.schemas.policy.features import DISABLED
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.third_party import ANNOTATION, third_party
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.known_pods import LOW_CLASSES, known
from slacktide.streams.decisions.resources.batch_resource import cpu_policy, sums
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.figures import Figure
from slacktide.streams.explain.node_log import NodeLog

USERS_SHOWN = 3
DRY_RUN = "dry run by the policy: batch, mid and free resources are computed, but not written to the Node"
_NAMES = {
    "batch_cpu_milli": "batch-cpu",
    "batch_mem_bytes": "batch-memory",
    "mid_cpu_milli": "mid-cpu",
    "mid_mem_bytes": "mid-memory",
    "free_cpu_milli": "free-cpu",
    "free_mem_bytes": "free-memory",
    "cpu_milli": "cpu",
    "mem_bytes": "memory",
}
_ADVICE = {
    "margin": "to reserve less of the node, raise {reclaim}",
    "cap": "to offer more, raise {cap}",
}
_FIELDS = {
    "milli": {"reclaim": "cpu_reclaim_threshold_pct", "cap": "batch_cpu_threshold_pct"},
    "bytes": {"reclaim": "mem_reclaim_threshold_pct", "cap": "batch_mem_threshold_pct"},
}


def resource_name(field: str) -> str:
    """Return the name in a pod's requests without the domain: ``batch-cpu``; for others the field name."""
    return _NAMES.get(field, field)


def amount(value: float | None, field: str) -> str:
    """Format an amount with its unit from the field name."""
    if value is None:
        return "none"
    if field.endswith("bytes"):
        return f"{value / 2**20:,.0f} MiB"
    return f"{value:,.0f}m" if field.endswith("milli") else f"{value:g}"


def selling_findings(log: NodeLog, shown: Sequence[Figure]) -> Iterator[Finding]:
    """Report zero, capped and floored figures."""
    off = disabled(log)
    if off is not None:
        yield off
    if log.allocatable is None:
        if log.metric is not None:
            yield Finding(name="batch.absent", text="no batch resources are published for the node")
        return
    yield from _published(log.allocatable.body, disabled=off is not None)
    if off is None and sells_nothing(log):
        yield Finding(name="batch.dry-run", text=DRY_RUN)
    yield from _third_party(log)
    for figure in shown:
        yield from _figure(figure, log)


def _third_party(log: NodeLog) -> Iterator[Finding]:
    """Report what other schedulers hold of the node's batch resources."""
    if log.facts is None or ANNOTATION not in log.facts.annotations:
        return
    try:
        held = third_party(log.facts.annotations)
    except BadMessageError as exc:
        text = f"no batch resources are offered, since what other schedulers hold is unknown: {exc}"
        yield Finding(name="batch.unreadable", text=text, advice="correct or remove the annotation")
        return
    if held.names:
        text = (
            f"{', '.join(held.names)} hold batch-cpu {amount(held.cpu_milli, 'milli')} and batch-memory "
            f"{amount(held.mem_bytes, 'bytes')} by the annotation {ANNOTATION}: this is not offered to pods"
        )
        yield Finding(name="batch.third-party", text=text)


def sells_nothing(log: NodeLog) -> bool:
    """Report that the policy is a dry run for the node's resources."""
    if log.policy is None or log.facts is None:
        return False
    return colocation_on(log.policy.body, log.facts).resource_dry_run


def disabled(log: NodeLog) -> Finding | None:
    """Report that the policy disables batch resources on the node, and by which field."""
    if log.policy is None or log.facts is None:
        return None
    if colocation_on(log.policy.body, log.facts).enable:
        return None
    found = effective(log.policy.body, log.facts)
    source = f"{key_of('colocation')}: {DISABLED} ({found.source('colocation.enable')})"
    return Finding(
        name="batch.disabled",
        text=f"batch resources are disabled by policy {log.policy.body.version}: {source}",
        advice=f"set {path_of('colocation', 'enable')} to true; see `slacktide policy effective`",
    )


def _published(body: NodeAllocatable, *, disabled: bool) -> Iterator[Finding]:
    """Report that nothing is published, or only what running pods requested."""
    if body.stale_ms:
        yield _stale(body)
    elif not disabled and (body.reason or body.batch_cpu_milli is None):
        yield _none(body)
    elif body.degraded:
        text = "batch resources are degraded: no recent measurement for longer than the policy allows"
        yield Finding(name="batch.degraded", text=text)


def _stale(body: NodeAllocatable) -> Finding:
    return Finding(
        name="batch.stale",
        text=f"no new batch pods are placed there: the node was silent for {body.stale_ms / 1000:.1f} s, and its "
        "batch resources were reduced to the requests of running pods (batch-cpu "
        f"{amount(body.batch_cpu_milli, 'milli')}), until its next samples",
    )


def _none(body: NodeAllocatable) -> Finding:
    kept = "" if body.batch_cpu_milli is None else ", except what running pods requested"
    text = f"no batch resources are published{kept}: {body.reason or 'no reason is given'}"
    return Finding(name="batch.none", text=text)


def _figure(figure: Figure, log: NodeLog) -> Iterator[Finding]:
    name, because = resource_name(figure.of), figure.because
    if because is not None and figure.of.startswith("batch"):
        if figure.emptied_by:
            yield _emptied(figure, because, log)
        elif because.bound == "capped" and (cap := _cap(because)) is not None:
            by = "the node's capacity" if cap == because.terms.get(f"capacity_{_unit(figure.of)}") else "its cap"
            text = f"{name} is limited to {amount(cap, figure.of)} by {by}: {_arithmetic(because)}"
            yield Finding(name="batch.capped", text=text)
    if because is not None and figure.of.startswith("free") and figure.emptied_by:
        text = f"{name} would be 0 because of {figure.emptied_by}: {_arithmetic(because)}"
        yield Finding(name="free.exhausted", text=text)
    if figure.floored:
        stands = f"{name} is {amount(figure.published, figure.of)}"
        text = f"{stands}, the requests of running pods; by the node's use alone it would be lower"
        yield Finding(
            name="batch.floored",
            text=text,
        )


def _cap(because: Because) -> float | None:
    """Return the cap; None: another version wrote the record."""
    return next((value for term, value in because.terms.items() if term.startswith("cap_")), None)


def _unit(of: str) -> str:
    return "milli" if of.endswith("milli") else "bytes"


def _emptied(figure: Figure, because: Because, log: NodeLog) -> Finding:
    stem, _, unit = figure.emptied_by.rpartition("_")
    paths = {name: path_of("colocation", field) for name, field in _FIELDS[unit].items()}
    who = _users(log, figure.of) if stem == "high_priority" else ""
    zero = f"{resource_name(figure.of)} {'would be' if figure.floored else 'is'} 0"
    return Finding(
        name="batch.exhausted",
        text=f"{zero} because of {figure.emptied_by}: {_arithmetic(because)}{who}",
        advice=_ADVICE.get(stem, "").format(**paths),
    )


def _arithmetic(because: Because) -> str:
    parts = [f"{part[0]} {part[1:]} {amount(because.terms[part[1:]], part)}" for part in because.adds]
    return " ".join(parts).removeprefix("+ ")


def _users(log: NodeLog, of: str) -> str:
    """Name the largest pods that precede batch, by use or request as in the policy."""
    if log.metric is None or log.policy is None or log.facts is None:
        return ""
    counts = _counts(log.metric.body, log.pods, colocation_on(log.policy.body, log.facts), of)
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:USERS_SHOWN]
    named_by: list[PodMetric | Pod] = [*log.metric.body.pods, *log.pods]
    names = {one.uid: f"{one.namespace}/{one.name}" for one in named_by if one.name}
    named = [f"{names.get(uid, f'pod {uid}')} {amount(counted, of)}" for uid, counted in most if counted]
    return f"; largest: {', '.join(named)}" if named else ""


def _counts(metric: NodeMetric, pods: Sequence[Pod], colocation: Colocation, of: str) -> dict[str, int]:
    """Return each pod's part of the sum by uid. A metric without its pod counts by use."""
    is_cpu = of == "batch_cpu_milli"
    field = "cpu_milli" if is_cpu else "mem_bytes"
    policy = cpu_policy(colocation) if is_cpu else colocation.mem_calculate_policy
    there = known(pods)
    uses = {one.uid: int(getattr(one.use, field)) for one in metric.pods}
    high = there.high
    rows = list(zip(high.uids, getattr(high, field), high.lse, strict=True))
    rows += [
        (one.uid, 0, False)
        for one in metric.pods
        if one.uid not in there.live and one.priority_class not in LOW_CLASSES
    ]
    return {uid: sums([(asked, uses.get(uid), is_lse and is_cpu)]).by(policy) for uid, asked, is_lse in rows}
