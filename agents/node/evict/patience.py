"""Back-off of eviction requests, per API server and per pod. Pure."""

from __future__ import annotations

from collections.abc import Callable

from slacktide.agents.node.evict.eviction_api import WORDS, Reply
from slacktide.schemas.backoff import Backoff

SECOND_NS = 1_000_000_000
BACKOFF_S, BACKOFF_S_MAX = 1, 30
"""Upper bounds of the first and of the longest wait."""
KEPT_S = 10
"""A PodDisruptionBudget allows it again once another pod is ready, which takes about that long."""
ANSWER_NS = 1_000_000_000
"""A pod whose request is unanswered for longer does not count as terminating."""

_TROUBLES = frozenset({"forbidden", "fenced", "overloaded", "away"})


class Patience:
    """Learns from replies which requests must wait, and why."""

    def __init__(self, random: Callable[[], float] | None = None) -> None:
        self.away = False
        """Whether the API server did not answer last time, so that no pod can be evicted."""
        self.why = ""
        """Why requests fail, apart from single pods; "": they do not."""
        self._until_ns = 0
        self._backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX, random=random)
        self._kept: dict[str, tuple[int, str]] = {}

    def replied(self, reply: Reply, now_ns: int) -> None:
        """Process a reply."""
        why = f"{WORDS.get(reply.verdict, '')}: {reply.message}"
        self.away = reply.verdict == "away"
        if reply.verdict not in _TROUBLES:
            self.why, self._until_ns = "", 0
            self._backoff.reset()
        else:
            self.why = why
            asked_s = reply.retry_after_s or 0
            if now_ns >= self._until_ns:  # otherwise it was sent at the same time as the last one
                self._until_ns = now_ns + round(self._backoff.next_s() * SECOND_NS)
            self._until_ns = max(self._until_ns, now_ns + asked_s * SECOND_NS)
        if reply.verdict == "kept":
            wait_s = max(KEPT_S, reply.retry_after_s or 0)
            self._kept[reply.uid] = now_ns + wait_s * SECOND_NS, why

    def refuses(self, uid: str, now_ns: int, *, asking: bool) -> str:
        """Return why not to request a pod now; "": request it. ``asking``: another request is open, one is enough."""
        if self.why and (asking or now_ns < self._until_ns):
            return self.why
        until_ns, why = self._kept.get(uid, (0, ""))
        return why if now_ns < until_ns else ""

    def kept(self, now_ns: int) -> list[str]:
        """Return the uids of pods that the API server protects for now."""
        self._kept = {uid: kept for uid, kept in self._kept.items() if now_ns < kept[0]}
        return sorted(self._kept)
