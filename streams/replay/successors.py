"""Pods that follow evicted ones: a Job replaces its pod, so an eviction takes work away for a while, not for good."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import NodeSample, PodUse

DEFAULT_MS = 30_000
"""Time until a successor runs, on a node where none was seen yet."""
Part = tuple[PodUse, Pod]


@dataclass(slots=True)
class Successors:
    """What a node's record shows of successors, and pods of the record's victims that another policy keeps."""

    kept: dict[str, Part] = field(default_factory=dict)
    """Pods that the recorded policy evicted, as they last were. Each stands in until its successor is recorded."""
    _last: dict[str, Part] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _awaited: list[tuple[str, int]] = field(default_factory=list)
    """Recorded victims that left: uid, and how long ago in ms."""
    _gaps: list[int] = field(default_factory=list)

    @property
    def after_ms(self) -> int:
        """Mean time from a pod's end to its successor's first sample, as recorded on this node so far."""
        return round(sum(self._gaps) / len(self._gaps)) if self._gaps else DEFAULT_MS

    def follow(self, sample: NodeSample, pods: Sequence[Pod], victims: Collection[str]) -> dict[str, str]:
        """Take in the next sample. Returns successors that came, with whom each of them follows.

        Args:
            sample: as recorded.
            pods: those that it names.
            victims: uids of all that the recorded policy has evicted so far.

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
                self._last[uid] = part  # of a victim, as it was before it was held back
        self._seen.update(now)
        return came


def _best_effort(pod: Pod | None) -> bool:
    return pod is not None and is_best_effort(pod)
