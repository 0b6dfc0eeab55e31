"""The input for computing a node's resources: its load by class, its reservation, whether its metric is too old.

Also a pod's CPU and memory request, from its containers and init containers. Reading: koordinator a7a1b76b,
pkg/slo-controller/noderesource/plugins/{batchresource,midresource}/plugin.go, also isDegradeNeeded; pkg/util/node.go,
GetNodeReservationFromAnnotation and kubelet reserved; kubernetes v1.34, component-helpers/resource/helpers.go,
PodRequests, which the reference calls.
"""

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING

import msgspec

from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.kubernetes_fields import Amounts, Needs, Parts, parts_of
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import PodMetric, Use
from slacktide.streams.decisions.because import Because, Figured
from slacktide.streams.decisions.cpu_list import cpu_list
from slacktide.streams.decisions.known_pods import LOW_CLASSES, HighPods, known

NOTHING = Use(cpu_milli=0, mem_bytes=0)


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node, its pods and what they use."""

    facts: NodeFacts
    pods: Sequence[Pod]
    """Pods that are neither Running nor Pending do not count."""
    metrics: Sequence[PodMetric]
    """Windowed averages by uid; the last one of a uid wins."""
    system: Use
    """Node usage outside pods."""
    host_use: Use = NOTHING
    """Usage of host applications with a higher priority than batch pods."""


def high_priority(load: NodeLoad) -> tuple[HighPods, Mapping[str, Use], list[Use]]:
    """Collect the load with a higher priority than batch pods.

    Return pods, usage by uid (a missing uid has no metric), and usage without a live pod except of batch and free pods.
    """
    pods = known(load.pods)
    uses = {metric.uid: metric.use for metric in load.metrics}
    dangling: dict[str, PodMetric] = {}
    if not uses.keys() <= pods.live:
        dangling = {metric.uid: metric for metric in load.metrics if metric.uid not in pods.live}
    return pods.high, uses, [metric.use for metric in dangling.values() if metric.priority_class not in LOW_CLASSES]


def node_reserved(facts: NodeFacts) -> Resources:
    """Return the larger of the kubelet's and the annotation's reservation, in millicores and bytes.

    A CPU list in the annotation replaces its CPU amount. An invalid list voids the annotation.
    """
    kept_milli = max((facts.capacity.cpu_milli or 0) - (facts.allocatable.cpu_milli or 0), 0)
    kept_bytes = max((facts.capacity.mem_bytes or 0) - (facts.allocatable.mem_bytes or 0), 0)
    asked_milli, asked_bytes = facts.reserved.cpu_milli or 0, facts.reserved.mem_bytes or 0
    if facts.reserved_cpus:
        cpus = cpu_list(facts.reserved_cpus)
        if cpus is None:
            asked_milli = asked_bytes = 0
        elif cpus:
            asked_milli = len(cpus) * 1000
    return Resources(cpu_milli=max(kept_milli, asked_milli), mem_bytes=max(kept_bytes, asked_bytes))


def degraded(*, now_s: int, updated_s: int | None, degrade_time_min: int) -> Terms | None:
    """Return the age and its limit, or None if the metric is fresh. A metric at the limit or from the future is fresh.

    ``updated_s``: the time of the last report; None if there is none. ``degrade_time_min``: the maximum age.
    """
    limit_s = degrade_time_min * 60
    if updated_s is None:
        return {"limit_s": limit_s}
    if now_s > updated_s + limit_s:
        return {"age_s": now_s - updated_s, "limit_s": limit_s}
    return None


def pod_requests(needs: Needs) -> Figured:
    """Return the larger of containers plus sidecars and of the initialization peak, plus the overhead."""
    parts = parts_of(needs, "requests")
    cpu = _requested(parts, "cpu_milli", "cpu_milli", "milli")
    mem = _requested(parts, "mem_bytes", "memory_bytes", "bytes")
    return Figured.by("request", cpu, mem)


def _requested(parts: Parts, field: str, of: str, unit: str) -> Because:
    containers, sidecars, peak = (_rounded_up(each, field) for each in (parts.containers, parts.sidecars, parts.peak))
    overhead, total = _rounded_up(parts.overhead, field), _rounded_up(parts.total, field)
    terms: Terms = {
        f"containers_{unit}": containers,
        f"sidecars_{unit}": sidecars,
        f"init_peak_{unit}": peak,
        f"overhead_{unit}": overhead,
        f"request_{unit}": total + overhead,
    }
    if field in parts.pod_level:
        return Because(of=of, bound="pod_level", terms=terms)
    return Because(of=of, bound="init" if peak > containers + sidecars else "containers", terms=terms)


def _rounded_up(amounts: Amounts, field: str) -> int:
    return int(amounts[field].to_integral_value(ROUND_CEILING)) if field in amounts else 0
