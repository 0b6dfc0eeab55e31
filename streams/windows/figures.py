"""What is published of a node: NodeMetric, and what batch pods may ask for, from one window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.metric import NodeMetric, PodMetric
from slacktide.schemas.policy import Colocation, Policy
from slacktide.schemas.policy.effective import colocation_on
from slacktide.schemas.qos import effective_priority_class, effective_qos
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.batch_resource import BatchResource, batch_resource
from slacktide.streams.decisions.node_load import NodeLoad
from slacktide.streams.windows.node_window import Averages, NodeWindow

AMOUNT_MAX = 2**53
"""Readers in other languages keep numbers up to this exact."""
PUBLISH_MS_MIN = 1_000
REPUBLISH_MS = 5_000
"""Latest-state figures come again after this although they did not change: a reader tells quiet from dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The two records that go out together: the one is the other's input."""

    metric: NodeMetric
    allocatable: NodeAllocatable

    def same(self, other: Figures) -> bool:
        """Whether they say the same, whenever that was."""
        return _undated(self.metric) == _undated(other.metric) and _undated(self.allocatable) == _undated(
            other.allocatable
        )


def _undated(record: NodeMetric | NodeAllocatable) -> NodeMetric | NodeAllocatable:
    undated = msgspec.structs.replace(record, boot_id="", seq=0, observed_ms=0, covered_ms=0)
    return msgspec.structs.replace(undated, samples=0) if isinstance(undated, NodeMetric) else undated


class NodeFigures:
    """One node's window, and what was last published of it."""

    def __init__(self) -> None:
        self._window = NodeWindow(0)
        self._published: Figures | None = None

    def merge(
        self,
        sample: NodeSample,
        facts: NodeFacts | None,
        pods: Sequence[Pod] | None,
        policy: Policy,
        *,
        restarted: bool,
    ) -> bool:
        """Take one sample into the window; False: it comes too late.

        Args:
            sample: newer, by boot and seq, than all before it.
            facts: the sample's, if they are known.
            pods: the sample's pod list, if it is known.
            policy: its window for the node holds; another length than before begins anew.
            restarted: the node has a new boot or clock epoch, so that its time may have been set back.

        """
        window_ms = self._window_ms(facts, policy)
        if window_ms != self._window.window_ms:
            self._window = NodeWindow(window_ms)
        elif restarted and sample.observed_ms <= self._window.watermark_ms:
            self._window.restart()
        return self._window.merge(sample, {pod.uid for pod in pods or ()})

    def _window_ms(self, facts: NodeFacts | None, policy: Policy) -> int:
        """Without facts nothing tells which strategy holds: the window stays as it is, and begins as the cluster's."""
        if facts is None:
            return self._window.window_ms or policy.colocation.metric_aggregate_duration_s * 1_000
        return colocation_on(policy, facts).metric_aggregate_duration_s * 1_000

    def due(self, sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> Figures | None:
        """What to publish after this sample; None: nothing new, too soon, or nothing known yet."""
        before = self._published
        since_ms = REPUBLISH_MS if before is None else sample.observed_ms - before.metric.observed_ms
        if 0 <= since_ms < PUBLISH_MS_MIN:
            return None
        averages = self._window.averages()
        if averages is None:
            return None
        figures = _figures(sample, facts, pods, policy, self._window.window_ms, averages)
        if before is not None and 0 <= since_ms < REPUBLISH_MS and figures.same(before):
            return None
        self._published = figures
        return figures


def _figures(
    sample: NodeSample, facts: NodeFacts, pods: Sequence[Pod], policy: Policy, window_ms: int, averages: Averages
) -> Figures:
    metric = NodeMetric(
        node=sample.node,
        boot_id=sample.boot_id,
        seq=sample.seq,
        observed_ms=sample.observed_ms,
        window_ms=window_ms,
        covered_ms=averages.covered_ms,
        samples=averages.samples,
        policy_version=policy.version,
        facts_revision=sample.facts_revision,
        pods_revision=sample.pods_revision,
        node_use=averages.node,
        system_use=averages.system,
        pods=_pod_metrics(averages, pods),
    )
    return Figures(metric=metric, allocatable=allocatable_of(metric, facts, pods, policy))


def _pod_metrics(averages: Averages, pods: Sequence[Pod]) -> list[PodMetric]:
    """In order of uid: neither arrival nor a set's order may show."""
    by_uid = {pod.uid: pod for pod in pods}
    metrics = []
    for uid, use in sorted(averages.pods.items()):
        pod = by_uid.get(uid)
        if pod is None:
            metrics.append(PodMetric(uid=uid, use=use))
            continue
        metrics.append(
            PodMetric(
                uid=uid,
                namespace=pod.namespace,
                name=pod.name,
                priority_class=effective_priority_class(pod),
                qos=effective_qos(pod.qos_label, pod.kube_qos),
                use=use,
            )
        )
    return metrics


def allocatable_of(metric: NodeMetric, facts: NodeFacts, pods: Sequence[Pod], policy: Policy) -> NodeAllocatable:
    """What a policy makes of a node's figures: its own, or another one's beside it."""
    blank = NodeAllocatable(
        node=metric.node,
        boot_id=metric.boot_id,
        seq=metric.seq,
        observed_ms=metric.observed_ms,
        policy_version=metric.policy_version,
        facts_revision=metric.facts_revision,
        pods_revision=metric.pods_revision,
        window_ms=metric.window_ms,
        covered_ms=metric.covered_ms,
        batch_cpu_milli=None,
        batch_mem_bytes=None,
    )
    colocation = colocation_on(policy, facts)
    if not colocation.enable:
        return msgspec.structs.replace(blank, reason="disabled")
    load = NodeLoad(facts=facts, pods=pods, metrics=metric.pods, system=metric.system_use)
    batch = _batch(load, colocation)
    if batch is None:
        return msgspec.structs.replace(blank, reason="the node's strategy sells more than any machine has")
    cpu, mem = batch.because
    return msgspec.structs.replace(
        blank,
        batch_cpu_milli=batch.cpu_milli,
        batch_mem_bytes=batch.mem_bytes,
        cpu_terms=cpu.terms,
        mem_terms=mem.terms,
    )


def _batch(load: NodeLoad, colocation: Colocation) -> BatchResource | None:
    """None: beyond all figures, for what a node says of itself, a ratio of 1e300 say, went through no validation."""
    try:
        batch = batch_resource(load, colocation)
    except OverflowError:
        return None
    return batch if max(batch.cpu_milli, batch.mem_bytes) <= AMOUNT_MAX else None
