"""Records the recent CPU usage, request and limit of best-effort pods, for BECPUEvict and CPUEvict. Pure.

Reading: koordinator a7a1b76b, pkg/koordlet/metricsadvisor/collectors/beresource/be_resource_collector.go. Unlike the
reference, averages are weighted by time, so that the sampling interval does not change them.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.policy import ResourceThreshold
from slacktide.schemas.policy.features import cpu_evict, satisfaction
from slacktide.schemas.qos import raw_qos
from slacktide.schemas.sample import BeCpu, BeCpuWindow, Limits, NodeUse, PodUse

SPANS_MAX = 120
"""The maximum number of spans, for any window and sampling interval."""
SECOND_NS = 1_000_000_000

Figures = tuple[int, int, int, int]
"""Millicores: best-effort usage, request and limit; the node's usage."""


class Measured(Protocol):
    """A measurement of a node: an agent's reading, or a sample."""

    @property
    def interval_ms(self) -> int:
        """Monotonic time since the previous one."""

    @property
    def use(self) -> NodeUse:
        """The node's usage."""

    @property
    def pod_use(self) -> Sequence[PodUse]:
        """The usage of each pod."""

    @property
    def limits(self) -> Limits | None:
        """The limits of best-effort pods."""


@dataclass(slots=True)
class _Span:
    """Some seconds of the monotonic clock, and the measured part of them."""

    number: int
    measured_ns: int = 0
    sums: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    """Figures x nanoseconds. They are integers, so that an average of equal figures is exact."""

    def add(self, seen: Figures, measured_ns: int) -> None:
        self.measured_ns += measured_ns
        for place, figure in enumerate(seen):
            self.sums[place] += figure * measured_ns


class BeCpuHistory:
    """Records as much history as the policy in force requires."""

    def __init__(self) -> None:
        self._spans: deque[_Span] = deque(maxlen=SPANS_MAX)
        self._width_s = 0
        """Width of a span; 0: no rule requires a window."""
        self._seen_ns: int | None = None
        self._current: Figures | None = None

    def asked(self, threshold: ResourceThreshold) -> bool:
        """Return whether a rule in force requires a window."""
        return _asked_s(threshold) > 0

    def saw(self, now_ns: int, reading: Measured, facts: NodeFacts, pods: Sequence[Pod]) -> None:
        """Add a reading. An unknown value leaves a gap."""
        self.add(now_ns, reading.interval_ms, figures(reading, facts, pods) if self._width_s else None)

    def add(self, now_ns: int, interval_ms: int, seen: Figures | None) -> None:
        """Add the figures since the previous reading; None: a gap."""
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
        """Return the window up to the last reading. None if no rule requires it, or that reading is empty."""
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
    """Return the window that the rules in force require; 0: none."""
    window_s = threshold.cpu_evict_time_window_s
    if not threshold.enable:
        return 0
    if not satisfaction(threshold):
        return window_s or 1
    return 0 if cpu_evict(threshold) else window_s or 0


def figures(reading: Measured, facts: NodeFacts, pods: Sequence[Pod]) -> Figures | None:
    """Compute the figures of one reading. None if rates or limits are unknown, as in the first reading."""
    node_milli, limits = reading.use.cpu_milli, reading.limits
    if node_milli is None or limits is None:
        return None
    used_milli = sum(use.cpu_milli or 0 for use in reading.pod_use if use.best_effort_group)
    there = {use.uid for use in reading.pod_use}
    request_milli = sum(
        max(0, pod.requests.batch_cpu_milli or 0)
        for pod in pods
        if (pod.uid in there or pod.phase == "Pending") and raw_qos(pod.qos_label) == "BE" and pod.phase in LIVE_PHASES
    )
    # The smaller of the quota and the CPU set. An unknown CPU set counts as all CPUs.
    limit_milli = (facts.capacity.cpu_milli or 0) if limits.be_cpuset is None else len(limits.be_cpuset) * 1000
    if limits.be_cfs_quota_us is not None:
        limit_milli = min(limit_milli, limits.be_cfs_quota_us * 1000 // limits.be_cfs_period_us)
    return used_milli, request_milli, limit_milli, node_milli


def _be_cpu(usage: float, request: float, limit: float) -> BeCpu:
    return BeCpu(usage_milli=round(usage, 3), request_milli=round(request, 3), limit_milli=round(limit, 3))
