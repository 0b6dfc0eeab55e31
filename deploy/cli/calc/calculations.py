"""Lists the calculations, and applies one to a line of input."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Given
from slacktide.schemas.errors import SlacktideError

FAMILIES = {
    "resources": {
        "batch_resource": "what batch pods may ask for on a node, and in its NUMA zones",
        "batch_resource_publish": "what Koordinator would write of it; no part of Slacktide acts by it",
        "mid_resource": "what mid pods may ask for on a node",
        "free_resource": "what koord-free pods may ask for: only what is idle",
        "resource_sync_decision": "whether a change is large enough to be written",
        "published_floor": "published figures, never below what runs there asked for",
    },
    "admission": {
        "pod_requests": "what a pod of several containers asks for",
        "webhook_colocation_profile": "a pod as ClusterColocationProfiles change it",
    },
    "prediction": {
        "peak_histogram": "percentiles of a usage, in which old samples weigh less",
        "peak_models": "peaks of a node's pods, classes and system, as time goes on",
        "prod_reclaimable": "what production pods are predicted to leave for mid pods",
    },
    "suppress": {
        "cpu_suppress_allowed": "CPU that best-effort pods may use",
        "cpu_suppress_cfs_quota": "next CFS quota of the best-effort group",
        "cpu_suppress_cpuset_pick": "which CPUs to take first",
        "cpu_suppress_cpuset": "next CPU set of the best-effort group",
        "cpu_pressure": "whether best-effort pods stop for a moment, because others wait",
    },
    "evict": {
        "memory_evict": "victims when memory runs short, in order",
        "cpu_evict": "victims when CPU runs short, in order",
    },
    "burst": {
        "cpu_burst_value": "CFS burst of a container",
        "cpu_burst_node_state": "whether a node has CPU to lend to throttled containers",
        "cpu_burst_quota": "next CFS quota of throttled containers and their pod",
    },
    "load": {
        "load_aware_estimator": "what a pod is expected to use",
        "load_aware_scheduling": "whether a pod may go to a node, and how well it would fit",
        "load_aware_assign_cache": "load of a node as pods are assigned between two reports",
        "pod_placement": "which nodes may take a pod, and which of them should",
        "load_aware_descheduling": "which pods leave overloaded nodes for which others",
    },
    "numa": {
        "numa_filter": "whether a node's NUMA zones can hold a pod",
        "numa_policy_admit": "whether the kubelet's topology manager admits a request, and to which zones",
        "numa_score": "how well a node's NUMA zones suit a pod",
        "numa_batch_zones": "what of a node's batch resources each NUMA zone gives",
        "numa_pod_fingerprint": "a text that is equal for equal sets of pods",
        "numa_overreserve": "what NUMA zones have left beside pods that were placed there",
    },
    "queue": {
        "queue_quota": "quota, usage and what is available in a tree of cohorts",
        "queue_order": "which workload of a ClusterQueue is next",
        "queue_share": "how much a ClusterQueue or cohort borrows of what may be lent",
        "queue_preempt": "whom a workload preempts, without fair sharing",
        "queue_preempt_fair": "whom a workload preempts, with fair sharing",
        "queue_assign": "which flavors a workload gets, and whom it would preempt",
        "queue_cycle": "which workloads scheduling cycles admit, without fair sharing",
        "queue_cycle_fair": "which workloads scheduling cycles admit, with fair sharing",
        "queue_admitted_usage": "quota that an admitted workload uses",
        "queue_job": "a Job as a workload of the queue",
        "queue_job_start": "a Job as it is started and stopped",
        "queue_pods_ready": "what becomes of an admitted workload whose pods are not ready",
        "queue_pods_ready_condition": "what the condition PodsReady of a workload becomes",
        "queue_requeue": "which workloads wait, step aside and come back",
        "queue_block_admission": "whether a workload may be admitted while others wait for pods",
    },
    "jobs": {
        "job_status": "where a Job stands, from what its pods came to",
    },
}
"""The rules by family, with a description. A family has the name of its folder, a rule that of its module."""

CALCULATIONS = {name: description for rules in FAMILIES.values() for name, description in rules.items()}

_encoder = msgspec.json.Encoder()
_KEY_IN = "key` in `"
"""Msgspec's text for the key of a map, before the map's path."""
I = TypeVar("I", bound=Given)  # noqa: E741 - the input


class Case(msgspec.Struct, Generic[I], frozen=True):
    """One line."""

    name: str
    input: I


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

    def __init__(self, kind: type[Given], calculate: Callable[[Any], Calculated], *, explain: bool) -> None:
        self._decoder: msgspec.json.Decoder[Case[Any]] = msgspec.json.Decoder(Case[kind])  # type: ignore[valid-type]
        self._calculate = calculate
        self._explain = explain

    @classmethod
    def named(cls, name: str, *, explain: bool = False) -> Self:
        """Import the module of that name, and use its ``Input`` and ``calculate``."""
        family = next(family for family, rules in FAMILIES.items() if name in rules)
        module = importlib.import_module(f"{__package__}.{family}.{name}")
        return cls(module.Input, module.calculate, explain=explain)

    def answer(self, line: str | bytes) -> Answered:
        """Compute one line. It never raises."""
        try:
            case = self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            return _failed(_name_in(line), _text_of(exc))
        try:
            calculated = self._calculate(case.input)
            return Answered(case.name, calculated, self._written(case.name, calculated))
        except SlacktideError as exc:
            return _failed(case.name, str(exc))
        except OverflowError:
            return _failed(case.name, "input: the amounts add up to more than can be written")

    def _written(self, name: str, calculated: Calculated) -> bytes:
        result: dict[str, object] = {"name": name, "output": calculated.output}
        if self._explain:
            result["because"] = calculated.because
        return _encoder.encode(result)


def _failed(name: str | None, error: str) -> Answered:
    return Answered(name, None, _encoder.encode({"name": name, "error": error}))


def _name_in(line: str | bytes) -> str | None:
    try:
        return msgspec.json.decode(line, type=_Named).name
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _text_of(exc: Exception) -> str:
    """Return msgspec's text after the field's path: ``input.node.capacity.cpu_milli: Expected ...``."""
    what, at, path = str(exc).rpartition(" - at `")
    if not at:
        return str(exc)
    of_key = "key: " if path.startswith(_KEY_IN) else ""
    return f"{path.removeprefix(_KEY_IN).strip('$.`')}: {of_key}{what}"
