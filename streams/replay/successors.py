"""Finds pods that replace evicted ones. A Job recreates its pod, so an eviction removes work only for a while."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import NodeSample, PodUse

DEFAULT_MS = 30_000
"""Default time until a successor runs, if the node has no example yet."""
Part = tuple[PodUse, Pod]


@dataclass(slots=True)
class Successors:
    """Successors in a node's trace, and victims of the trace that another policy keeps."""

    kept: dict[str, Part] = field(default_factory=dict)
    """Evicted pods with their last sample, until their successor is recorded."""
    _last: dict[str, Part] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _awaited: list[tuple[str, int]] = field(default_factory=list)
    """Victims that ended: uid, and time since in ms."""
    _gaps: list[int] = field(default_factory=list)

    @property
    def after_ms(self) -> int:
        """Return the mean time from a pod's end to its successor's first sample on this node."""
        return round(sum(self._gaps) / len(self._gaps)) if self._gaps else DEFAULT_MS

    def follow(self, sample: NodeSample, pods: Sequence[Pod], victims: Collection[str]) -> dict[str, str]:
        """Add a sample. Returns new successors with their predecessors.

        Args:
            sample: as recorded.
            pods: its pods.
            victims: uids that the recorded policy has evicted so far.
        """
        came = {}
        self._awaited = [(uid, ago_ms + sample.interval_ms) for uid, ago_ms in self._awaited]
        known = {pod.uid: pod for pod in pods}
        now = {use.uid: (use, known[use.uid]) for use in sample.pod_use if _best_effort(known.get(use.uid))}
        for uid in [uid for uid in self._last if uid not in now]:
            part = self._last.pop(uid)
            if uid in victims:
                self._awaited.append((uid, 0))
                self.kept[uid] = part
        for uid, part in now.items():
            if uid not in self._seen and self._awaited:
                before, ago_ms = self._awaited.pop(0)
                self._gaps.append(ago_ms)
                self.kept.pop(before, None)
                came[uid] = before
            if uid not in victims or uid not in self._last:
                self._last[uid] = part  # for a victim: its state before it was throttled
        self._seen.update(now)
        return came


def _best_effort(pod: Pod | None) -> bool:
    return pod is not None and is_best_effort(pod)
