"""One node as the scheduler's part knows it: what the log says of it, and which pods are there. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.inventory import Resources
from slacktide.schemas.metric import NodeMetric, Use
from slacktide.schemas.score import NodeScore
from slacktide.streams.decisions.load_aware_args import Amounts, LoadAwareArgs, Thresholds
from slacktide.streams.decisions.load_aware_assign_cache import AssignCache
from slacktide.streams.decisions.load_aware_estimator import LoadAwarePod
from slacktide.streams.decisions.load_aware_existing import NodeReport, NodeUse, PodUse
from slacktide.streams.decisions.load_aware_scheduling import NodeState, node_state
from slacktide.streams.decisions.pod_placement import NodeView

FROZEN_S = 15.0
"""A node of which nothing was said for so long is left as it is: what is said comes again every 5 s."""
Figures = NodeScore | NodeMetric | NodeAllocatable
F = TypeVar("F", NodeScore, NodeMetric, NodeAllocatable)


class KnownNode:
    """Mutable.

    Args:
        name: of the node.
        args: of the core's rules.
        counting: whether pods that were placed since the last report count.

    """

    def __init__(self, name: str, args: LoadAwareArgs, *, counting: bool) -> None:
        self.pods: dict[str, LoadAwarePod] = {}
        """By uid: bound here, or just about to be."""
        self._name = name
        self._args = args
        self._counting = counting
        self._cache = AssignCache(args=args)
        self._score: NodeScore | None = None
        self._metric: NodeMetric | None = None
        self._allocatable: NodeAllocatable | None = None
        self._heard_s = float("-inf")
        self._state: NodeState | None = None
        self._asked: Resources | None = None

    def hear(self, figures: Figures, *, heard_s: float, logged_s: float) -> None:
        """Something was said of the node; an older report than is known is passed over.

        Args:
            figures: what.
            heard_s: when it was heard, by the reader's own monotonic clock.
            logged_s: when it came into the log, UTC epoch.

        """
        if isinstance(figures, NodeScore):
            self._score = _newer(self._score, figures)
        elif isinstance(figures, NodeAllocatable):
            self._allocatable = _newer(self._allocatable, figures)
        else:
            self._metric = _newer(self._metric, figures)
            if self._metric is figures:
                self._cache.measured(_report(figures, logged_s))
        self._heard_s = max(self._heard_s, heard_s)
        self._state = None

    def forget(self, kind: type[Figures]) -> None:
        """The log takes back what it said of the node in one topic: others may be ahead of it, or behind."""
        if kind is NodeScore:
            self._score = None
        elif kind is NodeAllocatable:
            self._allocatable = None
        else:
            self._metric = None
            self._cache.measured(None)
        self._state = None

    @property
    def unknown(self) -> bool:
        """Whether the log says nothing of it, and no pod is there."""
        return not self.pods and not self._said

    @property
    def _said(self) -> list[Figures]:
        return [one for one in (self._score, self._metric, self._allocatable) if one is not None]

    def place(self, pod: LoadAwarePod, *, at_s: float) -> None:
        """A pod is here."""
        known = self.pods.get(pod.pod.uid)
        self.pods[pod.pod.uid] = pod
        if self._counting:
            if known is None:
                self._cache.assign(pod, at_s=at_s)
            else:
                self._cache.update(pod, at_s=at_s)
        self._state = self._asked = None

    def leave(self, uid: str) -> None:
        """A pod is not here any more."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._cache.unassign(pod)
            self._state = self._asked = None

    def view(self, now_s: float) -> NodeView:
        """The node as a pod finds it now, by the clock that ``hear`` was told."""
        return NodeView(
            name=self._name,
            state=self._stands(),
            silent=self._silent(now_s),
            expired=self._age_s(now_s) >= self._args.expiration_s > 0,
            pressure=self._score.pressure if self._score is not None else (),
            batch_left=self._left("batch"),
            mid_left=self._left("mid"),
        )

    def silent(self, now_s: float) -> bool:
        """Whether what was said of it may not be true any more."""
        return bool(self._silent(now_s))

    def _silent(self, now_s: float) -> str:
        if not self._said:
            return ""  # nobody speaks of it: that is told as an unknown load
        if any(one.stale_ms for one in self._said):
            return "stale"
        return "frozen" if now_s - self._heard_s > FROZEN_S else ""

    def _age_s(self, now_s: float) -> float:
        """Of the report; that of a node nobody spoke of is none."""
        if self._metric is None:
            return 0.0
        return now_s - self._heard_s + self._metric.stale_ms / 1000

    def _stands(self) -> NodeState:
        if self._state is None:
            known = self._score is not None
            self._state = node_state(
                allocatable=_amounts(self._score.allocatable) if self._score is not None else Amounts(),
                custom=Thresholds(),
                load=self._cache.load() if known else None,
                args=self._args,
            )
        return self._state

    def _left(self, tier: str) -> Amounts:
        """What is published less what pods here asked for; without counting, as the log has it."""
        if not self._counting:
            return Amounts() if self._score is None else _amounts(getattr(self._score, f"{tier}_left"))
        if self._allocatable is None:
            return Amounts()
        if self._asked is None:
            self._asked = _sum(pod.pod.requests for pod in self.pods.values())
        return Amounts(
            *(
                max(0, (getattr(self._allocatable, field) or 0) - (getattr(self._asked, field) or 0))
                for field in (f"{tier}_cpu_milli", f"{tier}_mem_bytes")
            )
        )


def _newer(known: F | None, said: F) -> F:
    """Of the highest boot and sequence number; of the same, what was said later."""
    return said if known is None or (said.boot_id, said.seq) >= (known.boot_id, known.seq) else known


def _report(metric: NodeMetric, logged_s: float) -> NodeReport:
    """As the core takes it. Averages know a young pod only in part: until it has filled the window it is estimated."""
    return NodeReport(
        updated_s=logged_s,
        interval_s=metric.window_ms // 1000,
        node=NodeUse(use=_amounts(metric.node_use), system=_amounts(metric.system_use)),
        pods={
            (pod.namespace, pod.name): PodUse(_amounts(pod.use), pod.priority_class == "koord-prod")
            for pod in metric.pods
            if pod.name
        },
    )


def _amounts(use: Use) -> Amounts:
    return Amounts(use.cpu_milli, use.mem_bytes)


def _sum(requests: Iterable[Resources]) -> Resources:
    fields = ("batch_cpu_milli", "batch_mem_bytes", "mid_cpu_milli", "mid_mem_bytes")
    listed = list(requests)
    return Resources(**{field: sum(getattr(one, field) or 0 for one in listed) for field in fields})
