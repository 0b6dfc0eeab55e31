"""Notice before evictions: which pods have it, and how much time each has left. Pure."""

from __future__ import annotations

LAPSES_NS = 30_000_000_000
"""A pod not selected by a rule for this long gets a new notice. Rules pause 20 s after another eviction."""


class Notices:
    """Pods with a notice, by uid."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[int, int]] = {}
        """When the notice began, and when a rule last selected the pod."""

    def left_ns(self, uid: str, notice_ns: int, now_ns: int) -> int:
        """Return the notice time left for a selected pod; 0: evict it; all of ``notice_ns``: its notice begins now."""
        self._given = {one: seen for one, seen in self._given.items() if now_ns - seen[1] <= LAPSES_NS}
        given_ns, _ = self._given.get(uid, (now_ns, now_ns))
        self._given[uid] = given_ns, now_ns
        return max(0, given_ns + notice_ns - now_ns)
