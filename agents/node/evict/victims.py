"""Ends pods and watches each until it is gone: one outcome for its SIGTERM, one for its end.

Both are intents in the spool first. So the next start continues, and evicts no pod twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Doors, pod_of, sub_act
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.outcome import NodeOutcome

ENDED = "ended"
"""The ``bound`` of a pod's second outcome while it is not known how the pod ends."""
INTERRUPTED = "the agent stopped during the eviction"
BY_KUBELET = "evicted through the API; the kubelet ends it"
"""Marks an intent for the next start: the kubelet ends this pod."""
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


@dataclass(slots=True, kw_only=True)
class _Victim:
    dying: Dying
    end: NodeOutcome
    taken: Taken | None
    """None: from an earlier run."""
    stuck: bool = False
    trouble: str = ""


class Victims:
    """Terminating pods, by uid."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._best_effort, self._actuator, self._mono_ns = doors.best_effort, doors.actuator, doors.mono_ns
        self._victims: dict[str, _Victim] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._victims

    def __len__(self) -> int:
        return len(self._victims)

    @property
    def dying(self) -> list[str]:
        """Uids of pods that are expected to end."""
        return [uid for uid, victim in self._victims.items() if not victim.stuck]

    @property
    def stuck(self) -> list[str]:
        """Uids of pods that did not end after SIGKILL."""
        return [uid for uid, victim in self._victims.items() if victim.stuck]

    def resume(self, intents: Sequence[NodeOutcome]) -> tuple[list[NodeOutcome], list[NodeOutcome]]:
        """Continue with the terminating pods of an earlier run. Their grace period starts again.

        Return the second intents of terminating pods, then the first intents of pods that may not have been signalled.
        """
        begun = {pod_of(one): one for one in intents if one.spent is not None}
        ends = [one for one in intents if one.spent is None]
        for end in ends:
            self._enter(end, None)
            begin = begun.pop(pod_of(end), None)
            if begin is not None:
                begin = msgspec.structs.replace(begin, reason=f"{INTERRUPTED}: {begin.reason}")
                # The pod may not have been signalled yet, unless the kubelet ends it.
                self._doors.report(begin if end.reason == BY_KUBELET else self._asked(begin), None)
        return ends, list(begun.values())

    def begin(self, begin: NodeOutcome, grace_ms: int, taken: Taken, spend: Callable[[], None]) -> None:
        """Send SIGTERM to a pod. ``spend`` spends the credit."""
        begin = self._doors.reporter.dated(begin, taken)
        end = _end_of(begin, grace_ms)
        self._actuator.intend(begin)
        self._actuator.intend(end)
        spend()
        self._enter(end, taken)
        self._doors.report(self._asked(begin), taken)

    def follow(self, begin: NodeOutcome, grace_ms: int, taken: Taken | None) -> None:
        """Watch a pod that was evicted through the API, or deleted before. ``taken`` is None: from an earlier run."""
        end = msgspec.structs.replace(_end_of(begin, grace_ms), reason=BY_KUBELET)
        self._actuator.intend(end)
        self._enter(end, taken)
        self._doors.report(begin, taken)

    def look(self) -> None:
        """Check which pods are gone, and kill those whose grace period is over."""
        for uid, victim in list(self._victims.items()):
            processes = self._left(uid, victim)
            due = victim.dying.due(processes, self._mono_ns())
            if due == "kill":
                victim.dying.killed(self._mono_ns())
                victim.trouble = ""
                try:
                    self._best_effort.kill(uid)
                except CgroupError as exc:
                    victim.trouble = str(exc)
                due = victim.dying.due(self._left(uid, victim), self._mono_ns())
            if due == "over":
                del self._victims[uid]
                after_ms = victim.dying.since_ms(self._mono_ns())
                killed = victim.dying.first_killed_ns is not None
                how = "gone" if victim.dying.kubelets else "killed" if killed else "ended by itself"
                end = msgspec.structs.replace(
                    victim.end,
                    bound="killed" if killed else ENDED,
                    reason=f"{how} after {after_ms} ms",
                    terms=victim.end.terms | {"after_ms": after_ms},
                )
                self._doors.report(end, victim.taken)
            elif not victim.stuck and victim.dying.stuck(self._mono_ns()):
                self._report_stuck(victim, processes)

    def _asked(self, begin: NodeOutcome) -> NodeOutcome:
        try:
            self._best_effort.terminate(pod_of(begin))
        except CgroupError as exc:
            return msgspec.structs.replace(begin, result="failed", reason=str(exc))
        return begin

    def _enter(self, end: NodeOutcome, taken: Taken | None) -> None:
        grace_ns = int(end.terms.get("grace_ms", 0)) * 1_000_000
        dying = Dying(grace_ns=grace_ns, asked_ns=self._mono_ns(), kubelets=end.reason == BY_KUBELET)
        self._victims[pod_of(end)] = _Victim(dying=dying, end=end, taken=taken)

    def _left(self, uid: str, victim: _Victim) -> int | None:
        try:
            return self._best_effort.processes(uid)
        except CgroupError as exc:
            victim.trouble = str(exc)
            return None

    def _report_stuck(self, victim: _Victim, processes: int | None) -> None:
        victim.stuck = True
        left = "cannot count its processes" if processes is None else f"{processes} processes are left"
        when, why = "SIGKILL", victim.trouble or "they wait in the kernel, or are being restarted"
        if victim.dying.kubelets:
            when, why = "its grace", victim.trouble or "check that the kubelet runs and reaches the API server"
        stuck = msgspec.structs.replace(
            sub_act(victim.end, "stuck"), result="failed", bound="stuck", reason=f"{left} after {when}: {why}"
        )
        self._doors.report(stuck, victim.taken)


def _end_of(begin: NodeOutcome, grace_ms: int) -> NodeOutcome:
    terms = {"grace_ms": grace_ms}
    return msgspec.structs.replace(sub_act(begin, ENDED), bound=ENDED, reason="", terms=terms, spent=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How many pods are terminating or held back."""

    dying: int
    stuck: int
    frozen: int
    throttled: bool
    freezes: bool
    reclaim_paused: bool = False
    """Whether pressure holds back the reclaim of memory."""
