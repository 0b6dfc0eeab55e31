"""Explains mid resources by the predicted use of production pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from slacktide.schemas.allocatable import NodeAllocatable, Prediction
from slacktide.schemas.forecast import NodeForecast, PodModel
from slacktide.schemas.inventory import Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.qos import effective_priority_class
from slacktide.schemas.units import count
from slacktide.streams.decisions.prediction.mid_forecast import PROD, is_warm
from slacktide.streams.explain.evidence import Finding
from slacktide.streams.explain.node_log import NodeLog
from slacktide.streams.explain.selling import amount, resource_name

YOUNG_SHOWN = 3
NO_FORECAST = "no forecast"


def mid_findings(log: NodeLog) -> Iterator[Finding]:
    """Report CPU and memory in one finding each, if mid resources are predicted."""
    if log.allocatable is None:
        return
    body = log.allocatable.body
    prediction = body.prediction
    for field, terms, unit in (
        ("mid_cpu_milli", body.mid_cpu_terms, "milli"),
        ("mid_mem_bytes", body.mid_mem_terms, "bytes"),
    ):
        of = _Of(terms, unit)
        if f"reclaimable_{unit}" not in terms or not (prediction or of["mid"]):
            continue
        text = (
            f"{resource_name(field)} {of.text('mid')} = {of.text('base')} that production pods are predicted not to "
            "use "
        )
        text += f"({_leaves(prediction, unit)}) + {terms.get('unallocated_pct', 0):g}% of {of.text('unallocated')} "
        text += f"that no pod requested; limited by {_cap(of)}"
        yield Finding(name="mid.predicted", text=text + _young(log, body))


class _Of:
    """Terms of one unit."""

    def __init__(self, terms: Mapping[str, int | float], unit: str) -> None:
        self._terms, self._unit = terms, unit

    def __getitem__(self, name: str) -> int | float:
        return self._terms.get(f"{name}_{self._unit}", 0)

    def text(self, name: str) -> str:
        return amount(self[name], self._unit)


def _leaves(prediction: Prediction | None, unit: str) -> str:
    if prediction is None or prediction.state:
        return NO_FORECAST if prediction is None else prediction.state
    terms: Terms = prediction.cpu_terms if unit == "milli" else prediction.mem_terms
    bound = prediction.cpu_bound if unit == "milli" else prediction.mem_bound
    of, margin = _Of(terms, unit), f"incl. {terms.get('safety_margin_pct', 0):g}%"
    if bound == "pods":
        return (
            f"sum over pods: requests {of.text('prod_request')}, less predicted peaks {of.text('pods_peak')} {margin}"
        )
    begin = "allocatable" if bound == "allocatable" else "prod_request"
    name = "allocatable" if bound == "allocatable" else "requests"
    system = f"system {of.text('system_peak')}"
    return f"{name} {of.text(begin)} - predicted peak {of.text('node_peak')} {margin} and {system}"


def _cap(of: _Of) -> str:
    caps = [f"the unused amount {of.text('unused')}"] if of["base"] < of["reclaimable"] else []
    if of["mid"] < of["base"] + of["unallocated_part"]:
        caps.append(f"the policy's percent of the node {of.text('cap')}")
    return " and ".join(caps) or "nothing"


def _young(log: NodeLog, body: NodeAllocatable) -> str:
    """Name the pods without a usable prediction yet."""
    if body.prediction is None or not body.prediction.young:
        return ""
    names = [] if log.forecast is None else [f"{pod.namespace}/{pod.name}" for pod in log.pods if _why(log, pod)]
    shown = f", such as {', '.join(names[:YOUNG_SHOWN])}" if names else ""
    return f"; nothing is added for {count(body.prediction.young, 'production pod')} with too few samples{shown}"


def pod_forecast_findings(log: NodeLog | None, pod: Pod) -> Iterator[Finding]:
    """Report a production pod's predicted use, its number of samples, and why its prediction is not used yet.

    Args:
        log: of its node; None: not bound.
        pod: from the node's list.
    """
    if log is None or log.forecast is None or effective_priority_class(pod) != PROD:
        return
    model = _model(log.forecast.body, pod.uid)
    text = "no peak is predicted"
    if model is not None:
        peaks = model.peaks
        since = datetime.fromtimestamp(peaks.since_ms // 1_000, UTC).isoformat().replace("+00:00", "Z")
        text = f"predicted peak: cpu {amount(peaks.cpu_p95_milli, 'milli')} (p95), "
        text += (
            f"memory {amount(peaks.mem_p98_bytes, 'bytes')} (p98), of {count(peaks.samples, 'sample')} since {since}"
        )
    why = _why(log, pod)
    yield Finding(
        name="pod.forecast",
        text=f"{text}; its unused request is not offered to mid pods: {why}" if why else text,
    )


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
    cold_s = (
        0 if log.policy is None or log.facts is None else colocation_on(log.policy.body, log.facts).mid_cold_start_s
    )
    if is_warm(sampled_s, cold_s, of_pod=True):
        return ""
    return f"its containers have samples of {sampled_s:,} s, and a prediction requires {cold_s:,} s"
