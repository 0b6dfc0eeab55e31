"""What best-effort pods got of the CPU over the last while: the history behind BECPUEvict and CPUEvict. Pure.

Reading: koordinator a7a1b76b, pkg/koordlet/metricsadvisor/collectors/beresource/be_resource_collector.go. Different on
purpose: time counts, not readings, so that the sampling interval changes no average.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.policy import ResourceThreshold
from slacktide.schemas.policy.lacks import cpu_evict, satisfaction
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.sample import BeCpu, BeCpuWindow, Limits, NodeUse, PodUse

SPANS_MAX = 120
"""However long the window is and however often it is sampled, so many averages are kept."""
SECOND_NS = 1_000_000_000

Figures = tuple[int, int, int, int]
"""Millicores: best-effort usage, request and limit; the node's usage."""


class Measured(Protocol):
    """What was read of a node: an agent's reading, or a sample."""

    @property
    def interval_ms(self) -> int:
        """Monotonic time since the one before."""

    @property
    def use(self) -> NodeUse:
        """Of the node."""

    @property
    def pod_use(self) -> Sequence[PodUse]:
        """Of each pod."""

    @property
    def limits(self) -> Limits | None:
        """What best-effort pods are held to."""


@dataclass(slots=True)
class _Span:
    """Some seconds of the monotonic clock, as far as they were measured."""

    number: int
    measured_ns: int = 0
    sums: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    """Figures times nanoseconds: whole, so that an average of equal figures is that figure."""

    def add(self, seen: Figures, measured_ns: int) -> None:
        self.measured_ns += measured_ns
        for place, figure in enumerate(seen):
            self.sums[place] += figure * measured_ns


class BeCpuHistory:
    """Remembers as far back as a policy in force asks for, and nothing where none does."""

    def __init__(self) -> None:
        self._spans: deque[_Span] = deque(maxlen=SPANS_MAX)
        self._width_s = 0
        """Of a span; 0: nobody asks."""
        self._seen_ns: int | None = None
        self._current: Figures | None = None

    def asked(self, threshold: ResourceThreshold) -> bool:
        """Whether a rule in force looks back."""
        return _asked_s(threshold) > 0

    def saw(self, now_ns: int, reading: Measured, facts: NodeFacts, pods: Sequence[Pod]) -> None:
        """The kernel was read; what could not be read leaves a gap."""
        self.add(now_ns, reading.interval_ms, figures(reading, facts, pods) if self._width_s else None)

    def add(self, now_ns: int, interval_ms: int, seen: Figures | None) -> None:
        """Take in the figures of the time since the reading before; None: a gap."""
        before_ns = now_ns - interval_ms * 1_000_000 if self._seen_ns is None else self._seen_ns
        self._seen_ns = now_ns
        self._current = seen if self._width_s else None
        if self._current is None:
            return
        number = now_ns // (self._width_s * SECOND_NS)
        if not self._spans or self._spans[-1].number != number:
            self._spans.append(_Span(number))
        self._spans[-1].add(self._current, max(1, now_ns - before_ns))

    def window(self, threshold: ResourceThreshold) -> BeCpuWindow | None:
        """The last while, up to the last reading; None where no rule asks for it or that reading is empty."""
        window_s = _asked_s(threshold)
        width_s = -(-window_s // SPANS_MAX)
        if width_s != self._width_s:
            self._width_s, self._current = width_s, None
            self._spans.clear()
        if self._current is None:
            return None
        oldest = self._spans[-1].number - -(-window_s // width_s) + 1
        while self._spans[0].number < oldest:
            self._spans.popleft()
        measured_ns = sum(span.measured_ns for span in self._spans)
        usage, request, limit, node = (sum(one.sums[place] for one in self._spans) / measured_ns for place in range(4))
        return BeCpuWindow(
            average=_be_cpu(usage, request, limit),
            current=_be_cpu(*self._current[:3]),
            samples=min(window_s, round(measured_ns / SECOND_NS)),
            interval_s=1,
            node_usage_milli=round(node, 3),
        )


def _asked_s(threshold: ResourceThreshold) -> int:
    """How far back the rules in force look; 0: none does."""
    window_s = threshold.cpu_evict_time_window_s
    if not threshold.enable:
        return 0
    if not satisfaction(threshold):
        return window_s or 1
    return 0 if cpu_evict(threshold) else window_s or 0


def figures(reading: Measured, facts: NodeFacts, pods: Sequence[Pod]) -> Figures | None:
    """Of one reading. None where the rates are not known, as of the first reading, or the limit is not."""
    node_milli, limits = reading.use.cpu_milli, reading.limits
    if node_milli is None or limits is None:
        return None
    there = {use.uid for use in reading.pod_use}
    return (
        sum(use.cpu_milli or 0 for use in reading.pod_use if use.best_effort_group),
        sum(_requested_milli(pod) for pod in pods if pod.uid in there or pod.phase == "Pending"),
        _limit_milli(limits, facts),
        node_milli,
    )


def _requested_milli(pod: Pod) -> int:
    counts = raw_qos(pod.qos_label) == "BE" and pod.phase in LIVE_PHASES
    return max(0, pod.requests.batch_cpu_milli or 0) if counts else 0


def _limit_milli(limits: Limits, facts: NodeFacts) -> int:
    """The least of the quota and of the CPUs that the group may run on; where these are not known: all."""
    cpus_milli = (facts.capacity.cpu_milli or 0) if limits.be_cpuset is None else len(limits.be_cpuset) * 1000
    if limits.be_cfs_quota_us is None:
        return cpus_milli
    return min(cpus_milli, limits.be_cfs_quota_us * 1000 // limits.be_cfs_period_us)


def _be_cpu(usage: float, request: float, limit: float) -> BeCpu:
    return BeCpu(usage_milli=round(usage, 3), request_milli=round(request, 3), limit_milli=round(limit, 3))
