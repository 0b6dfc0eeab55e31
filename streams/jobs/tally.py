"""Keeps data of a Job that its controller drops: failures by rule, lost work, evictions, progress. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from slacktide.schemas.job_pod import JobPodFacts
from slacktide.schemas.job_status import (
    EVICTIONS_MAX,
    PROGRESS_MAX,
    RECENT_MAX,
    EvictedPod,
    FailureCount,
    JobStatus,
    PodEnd,
    Progress,
)

GAP_MS = 1_000
"""Minimum interval between progress points, while there are few."""


@dataclass(slots=True)
class Tally:
    """Adds up; keeps the newest entries of each list."""

    failures: dict[str, int] = field(default_factory=dict)
    evictions: int = 0
    lost_core_ms: int = 0
    recent: list[PodEnd] = field(default_factory=list)
    evicted: list[EvictedPod] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)

    @classmethod
    def of(cls, status: JobStatus) -> Tally:
        """Restore the tally of a published status."""
        return cls(
            failures={one.why: one.pods for one in status.failures},
            evictions=status.evictions,
            lost_core_ms=status.lost_core_ms,
            recent=list(status.recent),
            evicted=list(status.evicted),
            progress=list(status.progress),
        )

    def failed(self, pod: JobPodFacts, seen_ms: int, why: str, *, counted: bool) -> None:
        """Count a failed pod. ``why`` is the matched rule, or how the pod ended."""
        lost = 0
        if pod.started_ms:
            lost = pod.cpu_milli * max(0, (pod.ended_ms or seen_ms) - pod.started_ms) // 1_000
        self.failures[why] = self.failures.get(why, 0) + 1
        self.lost_core_ms += lost
        end = PodEnd(
            pod=pod.name,
            node=pod.node,
            index=pod.index,
            result="failed" if counted else "ignored",
            why=why,
            exits=[one for one in pod.exits if one.exit_code],
            seen_ms=seen_ms,
            lost_core_ms=lost,
        )
        self.recent.append(end)
        del self.recent[:-RECENT_MAX]

    def evict(self, pod: JobPodFacts) -> None:
        """Count an eviction by Slacktide."""
        assert pod.eviction is not None, "of an evicted pod"
        self.evictions += 1
        self.evicted.append(EvictedPod(pod=pod.name, index=pod.index, eviction=pod.eviction))
        del self.evicted[:-EVICTIONS_MAX]

    def by_rule(self) -> list[FailureCount]:
        """Return the failures, the most frequent first."""
        ordered = sorted(self.failures.items(), key=lambda one: (-one[1], one[0]))
        return [FailureCount(why=why, pods=pods) for why, pods in ordered]

    def point(self, seen_ms: int, succeeded: int, failed: int) -> None:
        """Record progress. If there are too many points, drop every second one and double the interval."""
        points = self.progress
        if points and (points[-1].succeeded, points[-1].failed) == (succeeded, failed):
            return
        gap_ms = max(GAP_MS, (points[-1].seen_ms - points[0].seen_ms) // PROGRESS_MAX) if points else 0
        one = Progress(seen_ms=seen_ms, succeeded=succeeded, failed=failed)
        if len(points) > 1 and seen_ms - points[-2].seen_ms < gap_ms:
            points[-1] = one
            return
        points.append(one)
        if len(points) > PROGRESS_MAX:
            del points[1:-1:2]
