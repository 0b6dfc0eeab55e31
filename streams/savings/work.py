"""Which work of a node's best-effort pods was lost: all that a pod used before its eviction, restart or failure. Pure.

Work is counted from the span's beginning on. A pod may have saved some of it; nothing in the log reports that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import uid_of
from slacktide.schemas.qos import is_best_effort
from slacktide.streams.savings.admission import NOTHING, Amounts
from slacktide.streams.savings.tally import Tally

FAILED = "Failed"


class Work:
    """Adds to a tally what is lost."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._done: dict[str, Amounts] = {}
        """Millicore- and byte-milliseconds since the pod's start, by uid."""
        self._containers: dict[str, Mapping[str, str]] = {}
        """Runtime ids by container, of each best-effort pod."""
        self._failed: set[str] = set()
        self._evicted: set[str] = set()

    def used(self, uid: str, used: Amounts, span_ms: int) -> None:
        """A pod used this much for that time. What an evicted pod uses until it ends is lost, too."""
        cpu_milli, mem_bytes = self._done.get(uid, NOTHING)
        self._done[uid] = Amounts(cpu_milli + used.cpu_milli * span_ms, mem_bytes + used.mem_bytes * span_ms)
        if uid in self._evicted:
            self._lose(self._done.pop(uid))

    def listed(self, pods: Sequence[Pod], *, counted: bool) -> None:
        """A new pod list: who restarted, who failed, who is gone."""
        best_effort = {pod.uid: pod for pod in pods if is_best_effort(pod)}
        for uid, pod in best_effort.items():
            before = self._containers.get(uid, {})
            now = {one.name: one.id or before.get(one.name, "") for one in pod.containers}
            restarted = any(before.get(name, id_) not in {"", id_} for name, id_ in now.items())
            failed = pod.phase == FAILED and uid not in self._failed
            self._containers[uid] = now
            if pod.phase == FAILED:
                self._failed.add(uid)
            if counted and uid not in self._evicted and (failed or restarted):
                self._tally.failures += failed
                self._tally.restarts += restarted and not failed
                self._lose(self._done.pop(uid, NOTHING))
        for uid in self._containers.keys() - best_effort.keys():  # its eviction may be reported later
            del self._containers[uid]
            self._failed.discard(uid)

    def evicted(self, target: str) -> bool:
        """Whether this is the first report of that pod's eviction."""
        uid = uid_of(target)
        if uid in self._evicted:
            return False
        self._evicted.add(uid)
        self._tally.evictions += 1
        self._lose(self._done.pop(uid, NOTHING))
        return True

    def _lose(self, work: Amounts) -> None:
        self._tally.cpu.lost += work.cpu_milli
        self._tally.mem.lost += work.mem_bytes
