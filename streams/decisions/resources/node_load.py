"""The load of a node by class: the input for computing its resources.

Reading: koordinator a7a1b76b, pkg/slo-controller/noderesource/plugins/{batchresource,midresource}/plugin.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.metric import PodMetric, Use
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


class HighPriority(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The load with a higher priority than batch pods."""

    pods: HighPods
    uses: Mapping[str, Use]
    """Usage by uid; a missing uid has no metric."""
    dangling: list[Use]
    """Metrics without a live pod, except those of batch and free pods."""


def high_priority(load: NodeLoad) -> HighPriority:
    """Collect the load with a higher priority than batch pods."""
    pods = known(load.pods)
    uses = {metric.uid: metric.use for metric in load.metrics}
    dangling: dict[str, PodMetric] = {}
    if not uses.keys() <= pods.live:
        dangling = {metric.uid: metric for metric in load.metrics if metric.uid not in pods.live}
    return HighPriority(
        pods=pods.high,
        uses=uses,
        dangling=[metric.use for metric in dangling.values() if metric.priority_class not in LOW_CLASSES],
    )
