"""Notice before evictions: which pods have it, and how long each may still stay. Pure."""

from __future__ import annotations

LAPSES_NS = 30_000_000_000
"""A pod that no rule selected for so long gets a new notice. Rules pause 20 s after another eviction."""


class Notices:
    """Pods that were given notice, by uid."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[int, int]] = {}
        """When notice was given, and when a rule last selected the pod."""

    def left_ns(self, uid: str, notice_ns: int, now_ns: int) -> int:
        """How long a selected pod may stay; 0: it may go. The whole time: its notice begins now.

        Args:
            uid: the pod's.
            notice_ns: how long before its eviction a pod has notice.
            now_ns: the monotonic instant.

        """
        self._given = {one: seen for one, seen in self._given.items() if now_ns - seen[1] <= LAPSES_NS}
        given_ns, _ = self._given.get(uid, (now_ns, now_ns))
        self._given[uid] = given_ns, now_ns
        return max(0, given_ns + notice_ns - now_ns)
