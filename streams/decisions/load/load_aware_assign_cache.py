"""The load of a node from one report to the next, as pods come and go.

Reading: koordinator a7a1b76b, pkg/scheduler/plugins/loadaware/pod_assign_cache.go. Its totals are kept by
adding and taking away; here they are computed anew from the pods there are, so they cannot drift.
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
    """One node's pods and latest report. Mutable; the time is that of the events, given with them."""

    args: LoadAwareArgs
    report: NodeReport | None = None
    _pods: dict[Hashable, AssignedPod] = field(default_factory=dict)
    _load: ExistingLoad | None = None
    """Of the present pods and report, once somebody asked."""

    def govern(self, args: LoadAwareArgs) -> None:
        """Other settings hold: pods are estimated anew, as of when they were assigned."""
        self.args = args
        self._pods = {key: assigned_pod(one.asked, now_s=one.scheduled_s, args=args) for key, one in self._pods.items()}
        self._load = None

    def assign(self, asked: LoadAwarePod, *, at_s: float) -> None:
        """A pod was placed here, or seen here; a terminated one is ignored."""
        if asked.pod.phase not in ENDED_PHASES:
            self._pods[_key(asked)] = assigned_pod(asked, now_s=at_s, args=self.args)
            self._load = None

    def unassign(self, asked: LoadAwarePod) -> None:
        """A pod is gone, or was not bound in the end."""
        if self._pods.pop(_key(asked), None) is not None:
            self._load = None

    def update(self, asked: LoadAwarePod, *, at_s: float) -> None:
        """A pod's object changed: it counts as assigned anew if its spec or conditions did, or it was unknown."""
        known = self._pods.get(_key(asked))
        if known is not None and asked.pod.phase in ENDED_PHASES:
            self.unassign(asked)
        elif known is None or _spec_and_conditions(known.asked) != _spec_and_conditions(asked):
            self.assign(asked, at_s=at_s)

    def measured(self, report: NodeReport | None) -> None:
        """The node reported; None: its NodeMetric is gone, and its pods stay."""
        self.report = report
        self._load = None

    def load(self) -> ExistingLoad | None:
        """The node's load as it is now; None without a report."""
        if self._load is None and self.report is not None:
            self._load = existing_load(
                self.report, self._pods.values(), prod_include_system=self.args.prod_include_system
            )
        return self._load


def _key(asked: LoadAwarePod) -> Hashable:
    """The uid; pods written by hand may have none."""
    pod = asked.pod
    return pod.uid or (pod.namespace, pod.name)


def _spec_and_conditions(asked: LoadAwarePod) -> tuple[object, ...]:
    """Labels, annotations and phase are neither: a pod that changes only these stays as it was assigned."""
    pod = asked.pod
    return pod.requests, pod.limits, pod.priority, asked.scheduled_s, asked.initialized_s
