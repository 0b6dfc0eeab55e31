"""Holds back victims that cannot be evicted, for lack of credit or because the API server refuses.

First it cuts the CPU of all best-effort pods, then it freezes pods one at a time. The spool gets the intent of thawing
first, so the next start knows which frozen pods are its own. It never thaws pods that something else froze.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import msgspec

from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Doors, pod_of, sub_act
from slacktide.schemas.credit import NO_CREDIT
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.outcome import NodeOutcome, Origin, Result
from slacktide.streams.decisions.evict.node_evict import Eviction
from slacktide.streams.decisions.suppress.cpu_suppress import TARGET
from slacktide.streams.decisions.suppress.cpu_suppress_quota import QUOTA_US_MIN

FROZEN, THAWED = "frozen", "thawed"
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
            if not self.throttled:
                return [Move("throttle")]
            lately = self._froze_ns is not None and now_ns - self._froze_ns < FREEZE_APART_NS
            if lately or not self.exhausted(now_ns):
                return []
            running = [uid for uid in starved if uid not in self.frozen and uid not in self._spared]
            return [Move("freeze", uid) for uid in running[:1]]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frozen:
    thawed: NodeOutcome
    taken: Taken | None
    """None: from an earlier run."""


Starved = tuple[Eviction, str]
"""A victim that cannot be evicted now, and why."""


class Holdback:
    """The one place that freezes and thaws."""

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._best_effort, self._actuator, self._mono_ns = doors.best_effort, doors.actuator, doors.mono_ns
        self._restraint = Restraint()
        self._frozen: dict[str, _Frozen] = {}
        self._throttle: tuple[Eviction, Taken, Origin] | None = None
        """The decision that the CPU was cut for."""
        self._reported_trouble = False

    @property
    def frozen(self) -> int:
        """How many pods it has frozen."""
        return len(self._frozen)

    @property
    def throttled(self) -> bool:
        """Whether it has cut the CPU of best-effort pods."""
        return self._restraint.throttled

    def resume(self, intents: Iterable[NodeOutcome]) -> None:
        """Thaw the pods that an earlier run froze, by its open intents."""
        for intent in intents:
            self._froze(pod_of(intent), _Frozen(thawed=intent, taken=None))
        self.let_all_go_on("the agent starts")

    @property
    def exhausted(self) -> bool:
        """Whether the CPU cut has been tried for long enough."""
        return self._restraint.exhausted(self._mono_ns())

    def look(self) -> None:
        """Forget the frozen pods that are gone."""
        for uid in list(self._frozen):
            with suppress(CgroupError):
                if self._best_effort.processes(uid) == 0:
                    self._let_go(uid, "unchanged", "the pod no longer exists")

    def evicted(self, uid: str) -> None:
        """Note that a pod was thawed to be evicted."""
        if uid in self._frozen:
            self._let_go(uid, "applied", "evicted")

    def release(self, uid: str) -> None:
        """Thaw a pod that something else ends."""
        if uid in self._frozen:
            self._thaw(uid, "evicted")

    def step(self, starved: Sequence[Starved], taken: Taken, origin: Origin, *, fed: bool) -> None:
        """Hold victims back by one more step, or undo all steps. ``fed``: another victim was evicted."""
        by_uid = {victim.pod.uid: (victim, why) for victim, why in starved}
        for move in self._restraint.due(list(by_uid), fed=fed, now_ns=self._mono_ns()):
            if move.kind == "throttle":
                victim, why = starved[0]
                named = f"{victim.pod.namespace}/{victim.pod.name}"
                self._throttle = victim, taken, origin
                self._actuator.cap_us = QUOTA_US_MIN
                self._restraint.did(move, self._mono_ns())
                no_credit, cannot = f"{NO_CREDIT} to evict {named}", f"{named} cannot be evicted: {why}"
                self._report_limits("throttled", no_credit if why == NO_CREDIT else cannot)
            elif move.kind == "freeze":
                self._freeze(*by_uid[move.uid], taken, origin)
            else:
                self._undo(move, "credit came" if fed else "no pod is selected any more")

    def close(self) -> None:
        """Undo all steps, because the agent stops."""
        self.let_all_go_on("the agent stops")

    def let_all_go_on(self, why: str) -> None:
        """Undo all steps, for this reason."""
        for move in self._restraint.undone():
            self._undo(move, why)

    def _undo(self, move: Move, why: str) -> None:
        if move.kind == "lift":
            self._actuator.cap_us = None
            self._restraint.did(move, self._mono_ns())
            self._report_limits("lifted", why)
        else:
            self._thaw(move.uid, why)

    def _report_limits(self, bound: str, reason: str) -> None:
        assert self._throttle is not None
        victim, taken, origin = self._throttle
        begun = self._doors.reporter.begun(
            taken, victim.rule, TARGET, origin, reason=reason, bound=bound, terms=victim.terms
        )
        limits = self._actuator.decided or self._actuator.limits
        self._doors.limit(limits, sub_act(begun, bound), taken)

    def _freeze(self, victim: Eviction, why: str, taken: Taken, origin: Origin) -> None:
        uid = victim.pod.uid
        decided = self._doors.reporter.begun_on(victim, taken, origin, why, bound=FROZEN)
        frozen = msgspec.structs.replace(sub_act(decided, FROZEN), result="applied")
        if trouble := self._best_effort.freeze_trouble:
            if not self._reported_trouble:
                self._reported_trouble = True
                self._doors.report(msgspec.structs.replace(frozen, result="failed", reason=trouble), taken)
            return
        others: frozenset[str] = frozenset()
        with suppress(CgroupError):
            others = self._best_effort.frozen()
        if uid in others:
            self._restraint.cannot(uid)
            unchanged = msgspec.structs.replace(frozen, result="unchanged", reason="another process has frozen it")
            self._doors.report(unchanged, taken)
        else:
            thawed = msgspec.structs.replace(sub_act(decided, THAWED), bound=THAWED)
            self._actuator.intend(self._doors.reporter.dated(thawed, taken))
            self._attempt(uid, frozen, _Frozen(thawed=thawed, taken=taken))

    def _attempt(self, uid: str, frozen: NodeOutcome, known: _Frozen) -> None:
        self._froze(uid, known)
        try:
            stopped = self._best_effort.freeze(uid)
        except CgroupError as exc:
            self._restraint.cannot(uid)
            self._doors.report(msgspec.structs.replace(frozen, result="failed", reason=str(exc)), known.taken)
            self._thaw(uid, "it could not be frozen")
            return
        reason = frozen.reason if stopped else f"{frozen.reason}; processes stop as soon as the kernel allows it"
        self._doors.report(msgspec.structs.replace(frozen, reason=reason), known.taken)

    def _froze(self, uid: str, known: _Frozen) -> None:
        self._frozen[uid] = known
        self._restraint.did(Move("freeze", uid), self._mono_ns())

    def _thaw(self, uid: str, why: str) -> None:
        """Thaw a pod. If the kernel refuses, retry, and report it once per second."""
        try:
            stood = uid in self._best_effort.frozen()
            self._best_effort.thaw(uid)
        except CgroupError as exc:
            thawed = self._frozen[uid].thawed
            failed = msgspec.structs.replace(sub_act(thawed, "not thawed"), result="failed", reason=str(exc))
            self._doors.refusals.add(self._doors.reporter.dated(failed, None), self._mono_ns())
            return
        self._let_go(uid, "applied" if stood else "unchanged", why)

    def _let_go(self, uid: str, result: Result, why: str) -> None:
        known = self._frozen.pop(uid)
        self._restraint.did(Move("thaw", uid), self._mono_ns())
        self._doors.report(msgspec.structs.replace(known.thawed, result=result, reason=why), known.taken)
