"""Tracks a node's load between reports as pods are added and removed.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/pod_assign_cache.go. The reference adds to and
subtracts from its totals. Here, they are recomputed from the present pods, so they cannot drift.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from slacktide.schemas.inventory import ENDED_PHASES
from slacktide.streams.decisions.load.load_aware_args import LoadAwareArgs
from slacktide.streams.decisions.load.load_aware_estimator import LoadAwarePod
from slacktide.streams.decisions.load.load_aware_existing import (
    AssignedPod,
    ExistingLoad,
    NodeReport,
    assigned_pod,
    existing_load,
)


@dataclass(slots=True, kw_only=True)
class AssignCache:
    """One node's pods and latest report. Mutable; each event brings its own time."""

    args: LoadAwareArgs
    report: NodeReport | None = None
    _pods: dict[Hashable, AssignedPod] = field(default_factory=dict)
    _load: ExistingLoad | None = None

    def govern(self, args: LoadAwareArgs) -> None:
        """Apply new settings: estimate all pods again, as of their assignment."""
        self.args = args
        self._pods = {key: assigned_pod(one.asked, now_s=one.scheduled_s, args=args) for key, one in self._pods.items()}
        self._load = None

    def assign(self, asked: LoadAwarePod, *, at_s: float) -> None:
        """Add a pod. A terminated pod is ignored."""
        if asked.pod.phase not in ENDED_PHASES:
            self._pods[_key(asked)] = assigned_pod(asked, now_s=at_s, args=self.args)
            self._load = None

    def unassign(self, asked: LoadAwarePod) -> None:
        """Remove a pod that was deleted or not bound."""
        if self._pods.pop(_key(asked), None) is not None:
            self._load = None

    def update(self, asked: LoadAwarePod, *, at_s: float) -> None:
        """Remove a terminated pod. Assign a pod again if it is unknown or its spec or conditions changed."""
        known = self._pods.get(_key(asked))
        if known is not None and asked.pod.phase in ENDED_PHASES:
            self.unassign(asked)
        elif known is None or _spec_and_conditions(known.asked) != _spec_and_conditions(asked):
            self.assign(asked, at_s=at_s)

    def measured(self, report: NodeReport | None) -> None:
        """Set the latest report; None: the NodeMetric was deleted, and the pods stay."""
        self.report = report
        self._load = None

    def load(self) -> ExistingLoad | None:
        """Return the node's current load; None without a report."""
        if self._load is None and self.report is not None:
            self._load = existing_load(
                self.report, self._pods.values(), prod_include_system=self.args.prod_include_system
            )
        return self._load


def _key(asked: LoadAwarePod) -> Hashable:
    pod = asked.pod
    return pod.uid or (pod.namespace, pod.name)


def _spec_and_conditions(asked: LoadAwarePod) -> tuple[object, ...]:
    """Return what a new assignment depends on. Labels, annotations and phase do not matter."""
    pod = asked.pod
    return pod.requests, pod.limits, pod.priority, asked.scheduled_s, asked.initialized_s
