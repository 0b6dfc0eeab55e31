"""Holds back victims that cannot be evicted, for lack of credit or because the API server refuses.

First it cuts the CPU of all best-effort pods, then it freezes pods one at a time. The spool gets the intent of thawing
first, so the next start knows which frozen pods are its own. It never thaws pods that something else froze.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from slacktide.agents.node.actuator import Act, Actuator
from slacktide.agents.node.evict.restraint import Move, Restraint
from slacktide.agents.node.kernel import BestEffortPods
from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Refusals, Reporter, begun_on, cause_of, pod_of, sub_act
from slacktide.schemas.credit import NO_CREDIT
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.outcome import NodeOutcome, Origin, Result
from slacktide.streams.decisions.evict.node_evict import Eviction
from slacktide.streams.decisions.suppress.cpu_suppress import TARGET
from slacktide.streams.decisions.suppress.cpu_suppress_quota import QUOTA_US_MIN

FROZEN, THAWED = "frozen", "thawed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frozen:
    thawed: NodeOutcome
    taken: Taken | None
    """None: from an earlier run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Starved:
    """A victim that cannot be evicted now."""

    victim: Eviction
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one decision required, and what was possible."""

    starved: Sequence[Starved]
    fed: bool
    taken: Taken
    origin: Origin


class Holdback:
    """The one place that freezes and thaws."""

    def __init__(
        self,
        *,
        best_effort: BestEffortPods,
        actuator: Actuator,
        reporter: Reporter,
        refusals: Refusals,
        mono_ns: Callable[[], int],
    ) -> None:
        self._best_effort = best_effort
        self._actuator = actuator
        self._reporter = reporter
        self._refusals = refusals
        self._mono_ns = mono_ns
        self._restraint = Restraint()
        self._frozen: dict[str, _Frozen] = {}
        self._throttle: tuple[Eviction, Wanted] | None = None
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
            if self._gone(uid):
                self._let_go(uid, "unchanged", "the pod no longer exists")

    def evicted(self, uid: str) -> None:
        """Note that a pod was thawed to be evicted."""
        if uid in self._frozen:
            self._let_go(uid, "applied", "evicted")

    def release(self, uid: str) -> None:
        """Thaw a pod that something else ends."""
        if uid in self._frozen:
            self._thaw(uid, "evicted")

    def step(self, wanted: Wanted) -> None:
        """Hold victims back by one more step, or undo all steps."""
        starved = {one.victim.pod.uid: one for one in wanted.starved}
        for move in self._restraint.due(list(starved), fed=wanted.fed, now_ns=self._mono_ns()):
            if move.kind == "throttle":
                self._hold_throttle(wanted.starved[0], wanted)
            elif move.kind == "freeze":
                self._freeze(starved[move.uid], wanted)
            else:
                self._undo(move, "credit came" if wanted.fed else "no pod is selected any more")

    def close(self) -> None:
        """Undo all steps, because the agent stops."""
        self.let_all_go_on("the agent stops")

    def let_all_go_on(self, why: str) -> None:
        """Undo all steps, for this reason."""
        for move in self._restraint.undone():
            self._undo(move, why)

    def _undo(self, move: Move, why: str) -> None:
        if move.kind == "lift":
            self._lift(why)
        else:
            self._thaw(move.uid, why)

    def _hold_throttle(self, first: Starved, wanted: Wanted) -> None:
        victim = first.victim
        self._throttle = victim, wanted
        self._actuator.cap_us = QUOTA_US_MIN
        self._restraint.did(Move("throttle"), self._mono_ns())
        self._report_limits(victim, wanted, "throttled", _to_evict(first))

    def _lift(self, why: str) -> None:
        assert self._throttle is not None
        self._actuator.cap_us = None
        self._restraint.did(Move("lift"), self._mono_ns())
        self._report_limits(*self._throttle, "lifted", why)

    def _report_limits(self, victim: Eviction, wanted: Wanted, bound: str, reason: str) -> None:
        cause = cause_of(victim, wanted.taken, wanted.origin, reason, bound=bound)
        outcome = sub_act(self._reporter.begun(cause, TARGET), bound)
        limits = self._actuator.decided or self._actuator.limits
        act = Act(
            limits=limits,
            id=outcome.command_id,
            rule=victim.rule,
            origin=wanted.origin,
            reason=reason,
            bound=bound,
            terms=victim.terms,
        )
        self._actuator.perform(act, outcome, dated=lambda report: self._reporter.dated(report, wanted.taken))

    def _freeze(self, starved: Starved, wanted: Wanted) -> None:
        victim, taken = starved.victim, wanted.taken
        uid = victim.pod.uid
        cause = cause_of(victim, taken, wanted.origin, starved.why, bound=FROZEN)
        decided = begun_on(victim.pod, cause, self._reporter)
        frozen = msgspec.structs.replace(sub_act(decided, FROZEN), result="applied")
        if trouble := self._best_effort.freeze_trouble:
            self._report_once(msgspec.structs.replace(frozen, result="failed", reason=trouble), taken)
        elif uid in self._frozen_now():
            self._restraint.cannot(uid)
            self._report(
                msgspec.structs.replace(frozen, result="unchanged", reason="another process has frozen it"), taken
            )
        else:
            thawed = msgspec.structs.replace(sub_act(decided, THAWED), bound=THAWED)
            self._actuator.intend(self._reporter.dated(thawed, taken))
            self._attempt(uid, frozen, _Frozen(thawed=thawed, taken=taken))

    def _attempt(self, uid: str, frozen: NodeOutcome, known: _Frozen) -> None:
        self._froze(uid, known)
        try:
            stopped = self._best_effort.freeze(uid)
        except CgroupError as exc:
            self._restraint.cannot(uid)
            self._report(msgspec.structs.replace(frozen, result="failed", reason=str(exc)), known.taken)
            self._thaw(uid, "it could not be frozen")
            return
        reason = frozen.reason if stopped else f"{frozen.reason}; processes stop as soon as the kernel allows it"
        self._report(msgspec.structs.replace(frozen, reason=reason), known.taken)

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
            self._refusals.add(self._reporter.dated(failed, None), self._mono_ns())
            return
        self._let_go(uid, "applied" if stood else "unchanged", why)

    def _let_go(self, uid: str, result: Result, why: str) -> None:
        known = self._frozen.pop(uid)
        self._restraint.did(Move("thaw", uid), self._mono_ns())
        self._report(msgspec.structs.replace(known.thawed, result=result, reason=why), known.taken)

    def _gone(self, uid: str) -> bool:
        try:
            return self._best_effort.processes(uid) == 0
        except CgroupError:
            return False

    def _frozen_now(self) -> frozenset[str]:
        try:
            return self._best_effort.frozen()
        except CgroupError:
            return frozenset()

    def _report(self, outcome: NodeOutcome, taken: Taken | None) -> None:
        self._actuator.conclude(self._reporter.dated(outcome, taken))

    def _report_once(self, outcome: NodeOutcome, taken: Taken) -> None:
        if not self._reported_trouble:
            self._reported_trouble = True
            self._report(outcome, taken)


def _to_evict(starved: Starved) -> str:
    pod = starved.victim.pod
    named = f"{pod.namespace}/{pod.name}"
    return f"{NO_CREDIT} to evict {named}" if starved.why == NO_CREDIT else f"{named} cannot be evicted: {starved.why}"
