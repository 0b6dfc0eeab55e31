"""Steps against victims over time: notice, SIGTERM to SIGKILL, back-off of requests, CPU cut and freezing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.agents.node.evict.eviction_api import WORDS, Reply
from slacktide.schemas.backoff import Backoff

FREEZE_AFTER_NS = 4_000_000_000
"""The CPU cut alone may be enough, and gets this much time."""
FREEZE_APART_NS = 900_000_000
"""About one per second; ticks are not exact."""
CALM_NS = 3_000_000_000


@dataclass(frozen=True, slots=True)
class Move:
    """One step, or its undoing."""

    kind: Literal["throttle", "freeze", "thaw", "lift"]
    uid: str = ""


class Restraint:
    """Keeps the steps taken, and decides the next ones."""

    def __init__(self) -> None:
        self.frozen: list[str] = []
        self.throttled = False
        self._throttled_ns = 0
        self._froze_ns: int | None = None
        self._starved_ns = 0
        self._spared: set[str] = set()

    def due(self, starved: Sequence[str], *, fed: bool, now_ns: int) -> list[Move]:
        """Return the next steps, in their order. ``starved``: uids in order; ``fed``: a victim was evicted."""
        if starved:
            self._starved_ns = now_ns
            return self._harder(starved, now_ns)
        if fed or now_ns - self._starved_ns >= CALM_NS:
            return self.undone()
        return []

    def undone(self) -> list[Move]:
        """Return all steps undone, the last one first."""
        self._spared.clear()
        return [Move("thaw", uid) for uid in reversed(self.frozen)] + [Move("lift")] * self.throttled

    def did(self, move: Move, now_ns: int) -> None:
        """Record a step that was taken."""
        if move.kind in {"throttle", "lift"}:
            self.throttled, self._throttled_ns = move.kind == "throttle", now_ns
        elif move.kind == "freeze":
            self.frozen.append(move.uid)
            self._froze_ns = now_ns
        else:
            self.frozen.remove(move.uid)

    def exhausted(self, now_ns: int) -> bool:
        """Return whether the CPU cut alone was given its time."""
        return self.throttled and now_ns - self._throttled_ns >= FREEZE_AFTER_NS

    def cannot(self, uid: str) -> None:
        """Record that a pod cannot be frozen, so that others are, until all steps are undone."""
        self._spared.add(uid)

    def _harder(self, starved: Sequence[str], now_ns: int) -> list[Move]:
        if not self.throttled:
            return [Move("throttle")]
        if not self.exhausted(now_ns):
            return []
        if self._froze_ns is not None and now_ns - self._froze_ns < FREEZE_APART_NS:
            return []
        running = (uid for uid in starved if uid not in self.frozen and uid not in self._spared)
        return [Move("freeze", uid) for uid in list(running)[:1]]


KILL_AGAIN_NS = 5_000_000_000
STUCK_NS = 10_000_000_000
"""From the first SIGKILL, or the end of the kubelet's grace period, until remaining processes are reported as stuck."""

Due = Literal["nothing", "kill", "over"]


@dataclass(slots=True, kw_only=True)
class Dying:
    """One terminating pod."""

    grace_ns: int
    asked_ns: int
    kubelets: bool = False
    """Whether the kubelet ends it."""
    first_killed_ns: int | None = None
    last_killed_ns: int | None = None

    def due(self, processes: int | None, now_ns: int) -> Due:
        """Return what to do now. ``processes``: how many are left; None: unknown."""
        if processes == 0:
            return "over"
        if self.kubelets or now_ns - self.asked_ns < self.grace_ns:
            return "nothing"
        if self.last_killed_ns is not None and now_ns - self.last_killed_ns < KILL_AGAIN_NS:
            return "nothing"
        return "kill"

    def killed(self, now_ns: int) -> None:
        """SIGKILL was sent."""
        self.last_killed_ns = now_ns
        if self.first_killed_ns is None:
            self.first_killed_ns = now_ns

    def stuck(self, now_ns: int) -> bool:
        """Return whether waiting for it no longer makes sense."""
        if self.kubelets:
            return now_ns - self.asked_ns >= self.grace_ns + STUCK_NS
        return self.first_killed_ns is not None and now_ns - self.first_killed_ns >= STUCK_NS

    def since_ms(self, now_ns: int) -> int:
        """Return the time since its end was requested."""
        return (now_ns - self.asked_ns) // 1_000_000


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
