"""Explains the batch and mid resources of a node: disabled, exhausted, stale, capped, floored or predicted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slacktide.schemas.allocatable import Prediction
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.forecast import NodeForecast, PodModel
from slacktide.schemas.inventory import Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import PodMetric
from slacktide.schemas.policy.configmap import key_of, path_of
from slacktide.schemas.policy.effective import colocation_on, effective
from slacktide.schemas.policy.features import DISABLED
from slacktide.schemas.qos import effective_priority_class
from slacktide.schemas.text import time_text
from slacktide.schemas.third_party import ANNOTATION, third_party
from slacktide.schemas.units import count
from slacktide.streams.analysis.explain.evidence import Finding
from slacktide.streams.analysis.explain.figures import Figure
from slacktide.streams.analysis.explain.node_log import NodeLog
from slacktide.streams.decisions.known_pods import LOW_CLASSES, known
from slacktide.streams.decisions.prediction.mid_forecast import PROD, is_warm
from slacktide.streams.decisions.resources.batch_resource import cpu_policy, sums

USERS_SHOWN, YOUNG_SHOWN = 3, 3
NO_FORECAST = "no forecast"
DRY_RUN = "dry run by the policy: batch, mid and free resources are computed, but not written to the Node"
_NATIVE = {"cpu_milli": "cpu", "mem_bytes": "memory"}
_TIERS = ("batch", "mid", "free")
_NAMES = {f"{tier}_{field}": f"{tier}-{name}" for tier in _TIERS for field, name in _NATIVE.items()} | _NATIVE
_ADVICE = {"margin": "to reserve less of the node, raise {reclaim}", "cap": "to offer more, raise {cap}"}
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


def offered_findings(log: NodeLog, shown: Sequence[Figure]) -> Iterator[Finding]:
    """Report zero, capped and floored figures."""
    off = disabled(log)
    if off is not None:
        yield off
    if log.allocatable is None:
        if log.metric is not None:
            yield Finding("batch.absent", "no batch resources are published for the node")
        return
    body = log.allocatable.body
    if body.stale_ms:
        yield Finding(
            "batch.stale",
            f"no new batch pods are placed there: the node was silent for {body.stale_ms / 1000:.1f} s, and its "
            "batch resources were reduced to the requests of running pods (batch-cpu "
            f"{amount(body.batch_cpu_milli, 'milli')}), until its next samples",
        )
    elif off is None and (body.reason or body.batch_cpu_milli is None):
        kept = "" if body.batch_cpu_milli is None else ", except what running pods requested"
        yield Finding("batch.none", f"no batch resources are published{kept}: {body.reason or 'no reason is given'}")
    elif body.degraded:
        text = "batch resources are degraded: no recent measurement for longer than the policy allows"
        yield Finding("batch.degraded", text)
    if off is None and log.policy and log.facts and colocation_on(log.policy.body, log.facts).resource_dry_run:
        yield Finding("batch.dry-run", DRY_RUN)
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
        yield Finding(
            "batch.unreadable",
            f"no batch resources are offered, since what other schedulers hold is unknown: {exc}",
            advice="correct or remove the annotation",
        )
        return
    if held.names:
        yield Finding(
            "batch.third-party",
            f"{', '.join(held.names)} hold batch-cpu {amount(held.cpu_milli, 'milli')} and batch-memory "
            f"{amount(held.mem_bytes, 'bytes')} by the annotation {ANNOTATION}: this is not offered to pods",
        )


def disabled(log: NodeLog) -> Finding | None:
    """Report that the policy disables batch resources on the node, and by which field."""
    if log.policy is None or log.facts is None or colocation_on(log.policy.body, log.facts).enable:
        return None
    source = effective(log.policy.body, log.facts).source("colocation.enable")
    return Finding(
        "batch.disabled",
        f"batch resources are disabled by policy {log.policy.body.version}: {key_of('colocation')}: {DISABLED} "
        f"({source})",
        advice=f"set {path_of('colocation', 'enable')} to true; see `slacktide policy effective`",
    )


def _figure(figure: Figure, log: NodeLog) -> Iterator[Finding]:
    name, because = resource_name(figure.of), figure.because
    tier, _, unit = figure.of.split("_")
    if because is not None and tier in {"batch", "free"}:
        parts = [f"{part[0]} {part[1:]} {amount(because.terms[part[1:]], part)}" for part in because.adds]
        arithmetic = " ".join(parts).removeprefix("+ ")
        # None: another version wrote the record.
        cap = next((value for term, value in because.terms.items() if term.startswith("cap_")), None)
        if figure.emptied_by and tier == "free":
            yield Finding("free.exhausted", f"{name} would be 0 because of {figure.emptied_by}: {arithmetic}")
        elif figure.emptied_by:
            stem, _, of_unit = figure.emptied_by.rpartition("_")
            paths = {which: path_of("colocation", field) for which, field in _FIELDS[of_unit].items()}
            users = _users(log, figure.of) if stem == "high_priority" else ""
            zero = f"{name} {'would be' if figure.floored else 'is'} 0"
            yield Finding(
                "batch.exhausted",
                f"{zero} because of {figure.emptied_by}: {arithmetic}{users}",
                advice=_ADVICE.get(stem, "").format(**paths),
            )
        elif tier == "batch" and because.bound == "capped" and cap is not None:
            by = "the node's capacity" if cap == because.terms.get(f"capacity_{unit}") else _cap(log)
            yield Finding("batch.capped", f"{name} is limited to {amount(cap, figure.of)} by {by}: {arithmetic}")
    if figure.floored:
        stands = f"{name} is {amount(figure.published, figure.of)}, the requests of running pods"
        yield Finding("batch.floored", f"{stands}; by the node's use alone it would be lower")


def _cap(log: NodeLog) -> str:
    if log.policy is not None and log.facts is not None:
        source = effective(log.policy.body, log.facts).source("colocation.batch_cpu_threshold_pct")
        if source.layer == "learned of":
            return f"what was {source}"
    return "its cap"


def _users(log: NodeLog, of: str) -> str:
    """Name the largest pods that precede batch, by use or request as in the policy. Unlisted pods count by use."""
    if log.metric is None or log.policy is None or log.facts is None:
        return ""
    colocation, pods = colocation_on(log.policy.body, log.facts), log.metric.body.pods
    is_cpu = of == "batch_cpu_milli"
    field = "cpu_milli" if is_cpu else "mem_bytes"
    policy = cpu_policy(colocation) if is_cpu else colocation.mem_calculate_policy
    there, uses = known(log.pods), {one.uid: int(getattr(one.use, field)) for one in pods}
    rows = list(zip(there.high.uids, getattr(there.high, field), there.high.lse, strict=True))
    unlisted = (one for one in pods if one.uid not in there.live and one.priority_class not in LOW_CLASSES)
    rows += [(one.uid, 0, False) for one in unlisted]
    counts = {uid: sums([(asked, uses.get(uid), is_lse and is_cpu)]).by(policy) for uid, asked, is_lse in rows}
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:USERS_SHOWN]
    named_by: list[PodMetric | Pod] = [*pods, *log.pods]
    names = {one.uid: f"{one.namespace}/{one.name}" for one in named_by if one.name}
    named = [f"{names.get(uid, f'pod {uid}')} {amount(counted, of)}" for uid, counted in most if counted]
    return f"; largest: {', '.join(named)}" if named else ""


def mid_findings(log: NodeLog) -> Iterator[Finding]:
    """Report CPU and memory in one finding each, if mid resources are predicted."""
    if log.allocatable is None:
        return
    body = log.allocatable.body
    young = ""  # the pods without a usable prediction yet
    if body.prediction is not None and body.prediction.young:
        names = [f"{pod.namespace}/{pod.name}" for pod in log.pods if _why(log, pod)]
        shown = f", such as {', '.join(names[:YOUNG_SHOWN])}" if names else ""
        pods = count(body.prediction.young, "production pod")
        young = f"; nothing is added for {pods} with too few samples{shown}"
    for field, terms in (("mid_cpu_milli", body.mid_cpu_terms), ("mid_mem_bytes", body.mid_mem_terms)):
        of = _Of(terms, field.rpartition("_")[2])
        if not of.has("reclaimable") or not (body.prediction or of["mid"]):
            continue
        caps = [f"the unused amount {of.text('unused')}"] if of["base"] < of["reclaimable"] else []
        if of["mid"] < of["base"] + of["unallocated_part"]:
            caps.append(f"the policy's percent of the node {of.text('cap')}")
        yield Finding(
            "mid.predicted",
            f"{resource_name(field)} {of.text('mid')} = {of.text('base')} that production pods are predicted not to "
            f"use ({_predicted(body.prediction, of.unit)}) + {terms.get('unallocated_pct', 0):g}% of "
            f"{of.text('unallocated')} that no pod requested; limited by {' and '.join(caps) or 'nothing'}{young}",
        )


@dataclass(frozen=True, slots=True)
class _Of:
    """Terms of one unit."""

    terms: Terms
    unit: str

    def __getitem__(self, name: str) -> int | float:
        return self.terms.get(f"{name}_{self.unit}", 0)

    def has(self, name: str) -> bool:
        return f"{name}_{self.unit}" in self.terms

    def text(self, name: str) -> str:
        return amount(self[name], self.unit)


def _predicted(prediction: Prediction | None, unit: str) -> str:
    if prediction is None or prediction.state:
        return NO_FORECAST if prediction is None else prediction.state
    is_cpu = unit == "milli"
    of = _Of(prediction.cpu_terms if is_cpu else prediction.mem_terms, unit)
    bound = prediction.cpu_bound if is_cpu else prediction.mem_bound
    margin = f"incl. {of.terms.get('safety_margin_pct', 0):g}%"
    if bound == "pods":
        peaks = f"{of.text('pods_peak')} {margin}"
        return f"sum over pods: requests {of.text('prod_request')}, less predicted peaks {peaks}"
    begin = of.text("allocatable" if bound == "allocatable" else "prod_request")
    name = "allocatable" if bound == "allocatable" else "requests"
    return f"{name} {begin} - predicted peak {of.text('node_peak')} {margin} and system {of.text('system_peak')}"


def pod_forecast_findings(log: NodeLog | None, pod: Pod) -> Iterator[Finding]:
    """Report a listed production pod's predicted use, its samples, and why its prediction is not used yet."""
    if log is None or log.forecast is None or effective_priority_class(pod) != PROD:
        return
    text = "no peak is predicted"
    if (model := _model(log.forecast.body, pod.uid)) is not None:
        peaks = model.peaks
        since = time_text(peaks.since_ms)
        cpu, memory = amount(peaks.cpu_p95_milli, "milli"), amount(peaks.mem_p98_bytes, "bytes")
        samples = f"{count(peaks.samples, 'sample')} since {since}"
        text = f"predicted peak: cpu {cpu} (p95), memory {memory} (p98), of {samples}"
    why = _why(log, pod)
    yield Finding("pod.forecast", f"{text}; its unused request is not offered to mid pods: {why}" if why else text)


def _model(forecast: NodeForecast, uid: str) -> PodModel | None:
    return next((one for one in forecast.pods if one.uid == uid), None)


def _why(log: NodeLog, pod: Pod) -> str:
    """Return why a pod counts by its request; "": it is predicted, or is not a production pod."""
    if log.forecast is None or effective_priority_class(pod) != PROD:
        return ""
    model = _model(log.forecast.body, pod.uid)
    if model is None:
        return "its agent has no model of it"
    sampled_s = model.peaks.samples * log.forecast.body.interval_ms // 1_000
    cold_s = colocation_on(log.policy.body, log.facts).mid_cold_start_s if log.policy and log.facts else 0
    if is_warm(sampled_s, cold_s, of_pod=True):
        return ""
    return f"its containers have samples of {sampled_s:,} s, and a prediction requires {cold_s:,} s"
