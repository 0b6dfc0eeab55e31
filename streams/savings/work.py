"""Computes lost work of a node's best-effort pods: a pod's use before its eviction or restart. Pure.

Work counts from the span's start. A pod may have saved some of it, which no record shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import is_best_effort
from slacktide.streams.savings.admission import NOTHING, Amounts
from slacktide.streams.savings.tally import Tally


class Work:
    """Adds lost work to a tally."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._done: dict[str, Amounts] = {}
        """Millicore- and byte-milliseconds since the pod's start, by uid."""
        self._containers: dict[str, Mapping[str, str]] = {}
        """Container ids of each best-effort pod."""
        self._evicted: set[str] = set()

    def used(self, uid: str, used: Amounts, span_ms: int) -> None:
        """Add a pod's use. The use of an evicted pod until its end is lost, too."""
        cpu_milli, mem_bytes = self._done.get(uid, NOTHING)
        self._done[uid] = Amounts(cpu_milli + used.cpu_milli * span_ms, mem_bytes + used.mem_bytes * span_ms)
        if uid in self._evicted:
            self._lose(self._done.pop(uid))

    def listed(self, pods: Sequence[Pod], *, counted: bool) -> None:
        """Add a pod list: finds restarted and deleted pods. It has no terminated pods."""
        best_effort = {pod.uid: pod for pod in pods if is_best_effort(pod)}
        for uid, pod in best_effort.items():
            before = self._containers.get(uid, {})
            now = {one.name: one.id or before.get(one.name, "") for one in pod.containers}
            restarted = any(before.get(name, id_) not in {"", id_} for name, id_ in now.items())
            self._containers[uid] = {**before, **now}
            if counted and restarted and uid not in self._evicted:
                self._tally.restarts += 1
                self._lose(self._done.pop(uid, NOTHING))
        for uid in self._containers.keys() - best_effort.keys():  # its eviction may be reported later
            del self._containers[uid]

    def knows(self, uid: str) -> bool:
        """Return whether the pod is known."""
        return uid in self._containers or uid in self._done

    def evicted(self, uid: str) -> bool:
        """Return whether this is the first report of the pod's eviction."""
        if uid in self._evicted:
            return False
        self._evicted.add(uid)
        self._tally.evictions += 1
        self._lose(self._done.pop(uid, NOTHING))
        return True

    def _lose(self, work: Amounts) -> None:
        self._tally.cpu.lost += work.cpu_milli
        self._tally.mem.lost += work.mem_bytes
