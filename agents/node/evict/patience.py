"""How long an API server that would not, or could not, is left alone; and a pod that it keeps. Pure."""

from __future__ import annotations

from collections.abc import Callable

from slacktide.agents.node.evict.eviction_api import WORDS, Reply
from slacktide.schemas.backoff import Backoff

SECOND_NS = 1_000_000_000
BACKOFF_S, BACKOFF_S_MAX = 1, 30
"""The ceiling of the first wait, and the highest one."""
KEPT_S = 10
"""A PodDisruptionBudget may allow it again once another pod is ready, which takes about that long."""
ANSWER_NS = 1_000_000_000
"""Who waits longer for an answer is not on its way out yet, for all that one knows."""

_TROUBLES = frozenset({"forbidden", "fenced", "overloaded", "away"})


class Patience:
    """Takes each reply; gives whom not to ask for now, and why."""

    def __init__(self, random: Callable[[], float] | None = None) -> None:
        self.away = False
        """The last reply was none: retried, and all the while nobody can be evicted."""
        self.why = ""
        """What is the matter with the server, or with who asks; "": nothing."""
        self._until_ns = 0
        self._backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX, random=random)
        self._kept: dict[str, tuple[int, str]] = {}

    def replied(self, reply: Reply, now_ns: int) -> None:
        """A reply came."""
        why = f"{WORDS.get(reply.verdict, '')}: {reply.message}"
        self.away = reply.verdict == "away"
        if reply.verdict not in _TROUBLES:
            self.why, self._until_ns = "", 0
            self._backoff.reset()
        else:
            self.why = why
            asked_s = reply.retry_after_s or 0
            if now_ns >= self._until_ns:  # else it was asked at the same time as the last one
                self._until_ns = now_ns + round(self._backoff.next_s() * SECOND_NS)
            self._until_ns = max(self._until_ns, now_ns + asked_s * SECOND_NS)
        if reply.verdict == "kept":
            wait_s = max(KEPT_S, reply.retry_after_s or 0)
            self._kept[reply.uid] = now_ns + wait_s * SECOND_NS, why

    def refuses(self, uid: str, now_ns: int, *, asking: bool) -> str:
        """Why not to ask for a pod now; "": ask.

        Args:
            uid: the pod's.
            now_ns: the monotonic instant.
            asking: whether somebody else is being asked for: of a server in trouble one is enough.

        """
        if self.why and (asking or now_ns < self._until_ns):
            return self.why
        until_ns, why = self._kept.get(uid, (0, ""))
        return why if now_ns < until_ns else ""

    def kept(self, now_ns: int) -> list[str]:
        """Uids of those whom the server does not let go now."""
        self._kept = {uid: kept for uid, kept in self._kept.items() if now_ns < kept[0]}
        return sorted(self._kept)
