"""Lists the calculations, applies one to a line of input, and formats its arithmetic."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from slacktide.deploy.cli.calc.case import Calculated
from slacktide.deploy.cli.calc.forms import arguments_in_cases
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.errors import SlacktideError
from slacktide.streams.decisions.because import Because

CALCULATIONS = {
    "batch_resource": ("resources", "batch resources of a node and of its NUMA zones"),
    "batch_resource_publish": (
        "resources",
        "batch resources that Koordinator would publish; Slacktide does not use them",
    ),
    "mid_resource": ("resources", "mid resources of a node"),
    "free_resource": ("resources", "free resources of a node, for koord-free pods: only what is idle"),
    "resource_sync_decision": ("resources", "whether a resource changed enough to be written to the Node"),
    "published_floor": ("resources", "published resources, at least what running pods requested"),
    "pod_requests": ("admission", "requests of a pod with several containers"),
    "webhook_colocation_profile": ("admission", "a new pod after ClusterColocationProfiles were applied"),
    "qos_priority_admit": ("admission", "whether a pod's QoS class, priority class and resources go together"),
    "peak_histogram": ("prediction", "percentiles of usage, in which older samples weigh less"),
    "peak_models": ("prediction", "peaks of a node's pods, classes and system over time"),
    "prod_reclaimable": ("prediction", "production resources that are predicted to stay unused, for mid pods"),
    "cpu_suppress_allowed": ("cpu", "CPU that best-effort pods may use"),
    "cpu_suppress_cfs_quota": ("cpu", "next CFS quota of the best-effort cgroup"),
    "cpu_suppress_cpuset_pick": ("cpu", "order in which CPUs are added to a CPU set"),
    "cpu_suppress_cpuset": ("cpu", "next CPU set of the best-effort cgroup"),
    "cpu_pressure": ("cpu", "whether best-effort pods are paused because latency-sensitive pods stall"),
    "cores_take": ("cores", "CPUs that a pod gets for itself on a node"),
    "cores_schedule": ("cores", "whether a pod binds CPUs of a node, and what is written to it"),
    "cores_ledger": ("cores", "which pods hold which CPUs, after each event"),
    "cores_zones": ("cores", "share of each NUMA zone in a pod that is aligned to them"),
    "cores_pools": ("cores_pools", "CPUs that pods without CPUs of their own share"),
    "cores_cpuset": ("cores_pools", "CPUs that the containers of a pod may use"),
    "memory_evict": ("evict", "pods to evict when memory is short, in order"),
    "cpu_evict": ("evict", "pods to evict when CPU is short, in order"),
    "cpu_burst_value": ("cpu", "CFS burst of a container"),
    "cpu_burst_node_state": ("cpu", "whether a node has spare CPU for throttled containers"),
    "cpu_burst_quota": ("cpu", "next CFS quota of throttled containers and their pod"),
    "load_aware_estimator": ("load", "estimated usage of a pod"),
    "load_aware_scheduling": ("load", "whether a pod fits on a node by load, and the node's score"),
    "load_aware_assign_cache": ("load", "estimated load of a node with pods assigned since its last report"),
    "pod_placement": ("load", "nodes that accept a pod, and their scores"),
    "load_aware_descheduling": (
        "evict",
        "pods to evict from overloaded nodes, and the nodes that have room for them",
    ),
    "numa_filter": ("numa", "whether a node's NUMA zones can hold a pod"),
    "numa_policy_admit": ("numa", "whether the kubelet's topology manager admits a request, and to which zones"),
    "numa_score": ("numa", "score of a node's NUMA zones for a pod"),
    "numa_batch_zones": ("numa", "share of each NUMA zone in a node's batch resources"),
    "numa_pod_fingerprint": ("numa", "fingerprint of a set of pods, as NodeResourceTopology contains it"),
    "numa_overreserve": (
        "numa",
        "free resources of NUMA zones, less pods that were placed but not reported yet",
    ),
    "queue_quota": ("queue_quota", "quota, usage and available quota in a tree of cohorts"),
    "queue_order": ("queue_order", "next workload of a ClusterQueue"),
    "queue_share": ("queue_quota", "share of a ClusterQueue or cohort: borrowed quota in relation to lendable quota"),
    "queue_preempt": ("queue_assign", "victims of a workload's preemption, without fair sharing"),
    "queue_preempt_fair": ("queue_assign", "victims of a workload's preemption, with fair sharing"),
    "queue_assign": ("queue_assign", "flavors of a workload, and whether it needs preemption"),
    "queue_cycle": ("queue_cycle", "workloads that scheduling cycles admit, without fair sharing"),
    "queue_cycle_fair": ("queue_cycle", "workloads that scheduling cycles admit, with fair sharing"),
    "queue_admitted_usage": ("queue_quota", "quota that an admitted workload uses"),
    "queue_job": ("jobs", "the Workload of a Job"),
    "queue_job_start": ("jobs", "changes to a Job when it is started or stopped"),
    "queue_pods_ready": ("queue_order", "eviction or requeuing of an admitted workload whose pods are not ready"),
    "queue_pods_ready_condition": ("queue_order", "condition PodsReady of a workload"),
    "queue_requeue": ("queue_order", "workloads that are pending, inadmissible or retried"),
    "queue_block_admission": ("queue_order", "whether a workload is admitted while others wait for their pods"),
    "kinds": ("kinds", "pod sets, state and writes of an object that a queue starts and stops, beside Jobs"),
    "job_status": ("jobs", "status of a Job, from the results of its pods"),
}
"""Module and description of each rule. The module computes it by its function ``calc_NAME``."""

_encoder = msgspec.json.Encoder()
_KEY_IN = "key` in `"
"""Msgspec's text for the key of a map, before the map's path."""
I = TypeVar("I")  # noqa: E741 - the input


class Case(msgspec.Struct, Generic[I], frozen=True):
    """One line."""

    name: str
    input: I
    admit: dict[str, Any] | None = None
    """Of ``kinds``: nodes of each pod set."""


class _Named(msgspec.Struct, frozen=True):
    name: str


@dataclass(frozen=True, slots=True)
class Answered:
    """One line's result."""

    name: str | None
    calculated: Calculated | None
    """None: it could not be computed."""
    line: bytes
    """The result as JSON."""


class Calculation:
    """Computes one decision rule for cases."""

    def __init__(self, name: str, *, explain: bool = False) -> None:
        module, _ = CALCULATIONS[name]
        function = getattr(importlib.import_module(f"{__package__}.{module}"), f"calc_{name}")
        kind, self._calculate = arguments_in_cases(function)
        self._admits = "admit" in inspect.signature(function).parameters
        self._decoder: msgspec.json.Decoder[Case[Any]] = msgspec.json.Decoder(Case[kind])  # type: ignore[valid-type]
        self._explain = explain

    def answer(self, line: str | bytes) -> Answered:
        """Compute one line. It never raises."""
        try:
            case = self._decoder.decode(line)
        except MALFORMED as exc:
            return _failed(_name_in(line), _text_of(exc))
        try:
            more = {"admit": case.admit} if self._admits else {}
            calculated = self._calculate(case.input, "input", **more)
            result: dict[str, object] = {"name": case.name, "output": calculated.output}
            if self._explain:
                result["because"] = calculated.because
            return Answered(case.name, calculated, _encoder.encode(result))
        except SlacktideError as exc:
            return _failed(case.name, str(exc))
        except OverflowError:
            return _failed(case.name, "input: the sum of the amounts is too large")


def _failed(name: str | None, error: str) -> Answered:
    return Answered(name, None, _encoder.encode({"name": name, "error": error}))


def _name_in(line: str | bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Named).name
    except MALFORMED:
        return None


def _text_of(exc: Exception) -> str:
    """Return msgspec's text after the field's path: ``input.node.capacity.cpu_milli: Expected ...``."""
    what, at, path = str(exc).rpartition(" - at `")
    if not at:
        return str(exc)
    of_key = "key: " if path.startswith(_KEY_IN) else ""
    return f"{path.removeprefix(_KEY_IN).strip('$.`')}: {of_key}{what}"


BAR_WIDTH = 40
GIB = 1 << 30


def waterfall(answered: Answered) -> str:
    """Return the case's name, each figure with its terms and the step that bound it, then the output."""
    head = answered.name or "(no name)"
    if answered.calculated is None:
        return f"{head}\n  {answered.line.decode()}\n"
    results = [f"  = {name}: {_encoder.encode(value).decode()}" for name, value in answered.calculated.output.items()]
    return "\n".join([head, *(block(because) for because in answered.calculated.because), *results]) + "\n"


def block(because: Because) -> str:
    """Format one figure. In a sum, each bar starts at the end of the one before it."""
    rows = [f"  {because.of}: {because.bound}"]
    signs = {part[1:]: part[0] for part in because.adds}
    name_width = max(map(len, because.terms), default=0)
    scale = max((because.terms[name] for name, sign in signs.items() if sign == "+"), default=0)
    level: int | float = 0
    for name, value in because.terms.items():
        sign, bar = signs.get(name, " "), ""
        if sign != " ":
            before, level = level, level + value if sign == "+" else level - value
            bar = _bar(before, level, scale)
        elif signs and name == list(because.terms)[-1]:
            bar = _bar(0, value, scale)
        rows.append(f"    {sign} {name:<{name_width}}  {_with_unit(name, value):>22}  {bar}".rstrip())
    return "\n".join(rows)


def _bar(start: float, end: float, scale: float) -> str:
    """Draw a bar: full for added parts, hollow for subtracted parts."""
    if scale <= 0:
        return ""
    low, high = sorted(min(BAR_WIDTH, max(0, round(BAR_WIDTH * each / scale))) for each in (start, end))
    return " " * low + ("█" if end >= start else "░") * (high - low)


def _with_unit(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return f"{value / GIB:,.2f} GiB"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
