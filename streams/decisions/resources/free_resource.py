"""Computes the resources that koord-free pods may request on a node.

The reference names this class but publishes no resources for it. Free resources also exclude the usage of batch pods.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from slacktide.schemas.inventory import LIVE_PHASES, Pod
from slacktide.schemas.message import Terms
from slacktide.schemas.metric import Use
from slacktide.schemas.policy.strategies import Colocation
from slacktide.schemas.qos import effective_priority_class
from slacktide.streams.decisions.because import Because, Figured, in_unit
from slacktide.streams.decisions.resources.batch_resource import batch_resource
from slacktide.streams.decisions.resources.node_load import NodeLoad

BATCH = "koord-batch"
_ADDS = ("+capacity", "-margin", "-system_or_reserved", "-high_priority", "-batch_used")


def free_resource(load: NodeLoad, colocation: Colocation) -> Figured:
    """Subtract the margin, system, high-priority and batch usage from capacity.

    The calculation policy is always "usage". A batch pod without a metric counts with its requests.
    """
    by_use = msgspec.structs.replace(
        colocation,
        cpu_calculate_policy="usage",
        mem_calculate_policy="usage",
        batch_cpu_threshold_pct=None,
        batch_mem_threshold_pct=None,
    )
    left_cpu, left_mem = batch_resource(load, by_use).because
    used = list(_batch_uses(load))
    cpu = _less(left_cpu, "free_cpu_milli", "milli", sum(use.cpu_milli for use in used))
    mem = _less(left_mem, "free_memory_bytes", "bytes", sum(use.mem_bytes for use in used))
    return Figured.by("free", cpu, mem)


def _batch_uses(load: NodeLoad) -> Iterable[Use]:
    metrics = {metric.uid: metric for metric in load.metrics}
    live = [pod for pod in load.pods if pod.phase in LIVE_PHASES]
    for pod in live:
        if effective_priority_class(pod) == BATCH:
            yield metrics[pod.uid].use if pod.uid in metrics else _asked(pod)
    known = {pod.uid for pod in live}
    yield from (metric.use for uid, metric in metrics.items() if uid not in known and metric.priority_class == BATCH)


def _asked(pod: Pod) -> Use:
    return Use(cpu_milli=pod.requests.batch_cpu_milli or 0, mem_bytes=pod.requests.batch_mem_bytes or 0)


def _less(left: Because, of: str, unit: str, used: int) -> Because:
    terms: Terms = {name: value for name, value in left.terms.items() if name != f"batch_{unit}"}
    free = int(terms[f"available_{unit}"]) - used
    return free_because(of, unit, terms | {f"batch_used_{unit}": used, f"free_{unit}": max(0, free)})


def free_because(of: str, unit: str, terms: Terms) -> Because:
    """Build the reason from computed or recorded terms."""
    bound = "formula" if terms[f"free_{unit}"] > 0 else "exhausted"
    return Because(of=of, bound=bound, terms=terms, adds=in_unit(unit, *_ADDS))
