"""Sets knobs of cgroups, and finds those that differ from their wanted values (drift).

Only knobs that this agent has set are restored. A knob that the kernel lacks is reported once and not tried again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from slacktide.agents.node.evict.evictor import BY_POLICY
from slacktide.agents.node.interfaces import Held, Kernel
from slacktide.agents.node.knobs import Standoff, Tuned, WatchedKnobs, dry_run_families, family_of
from slacktide.agents.node.protocol import Taken
from slacktide.agents.node.reporter import Doors
from slacktide.schemas.bounds import KnobValue
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.knob import KnobKey, pod_group, uid_of
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import KnobChange, NodeOutcome, Origin, PodName
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import Drift
from slacktide.streams.decisions.burst.node_burst import QUOTA_RULE
from slacktide.streams.decisions.cores.sharing import RULE as CPUSET
from slacktide.streams.decisions.knobs import RELEASED, WantedSetting, changes, released, wanted

DRIFT_MAX = 200
"""Most drifts in one sample. The others follow in later samples."""
LACKING = "lacking"
FIGHT = "fight"


@dataclass(frozen=True, slots=True)
class _Remark:
    """A note about a knob that was not written; reported with the next outcomes."""

    key: KnobKey
    held: KnobValue | None
    bound: str
    reason: str


class Tuner:
    """Sets all knobs besides the best-effort limit."""

    def __init__(self, kernel: Kernel, doors: Doors, tuned: Tuned, *, dry_run: bool) -> None:
        self._kernel = kernel
        self._doors, self._actuator = doors, doors.actuator
        self._tuned = tuned
        self._dry_run = dry_run
        self._watched = WatchedKnobs(kernel)
        self._standoff = Standoff()
        self._basis: tuple[NodeFacts, Sequence[Pod], Policy] | None = None
        self._known: Mapping[str, Pod] = {}
        self._wanted: Mapping[KnobKey, WantedSetting] = {}
        self._drift: dict[KnobKey, KnobValue | None] = {}
        self._lacking: dict[KnobKey, str] = {}
        self._lacks_reported: set[Knob] = set()
        self._dry_run_reported: dict[KnobKey, tuple[KnobValue | None, KnobValue | None]] = {}
        self._dry_families: frozenset[str] = frozenset()
        """Families of rules that the policy makes a dry run."""
        self._remarks: list[_Remark] = []
        self._now_ns = 0
        self._interrupted: list[NodeOutcome] = []

    @property
    def lacking(self) -> Mapping[Knob, int]:
        """How many cgroups lack each wanted knob."""
        return Counter(key.knob for key in self._lacking)

    @property
    def holds(self) -> bool:
        """Whether a knob that this agent has set is not restored yet."""
        return bool(self._tuned.keys)

    def start(self) -> None:
        """Load what the last run began and did not finish. It is reported after the first reading."""
        self._interrupted = [one for one in self._actuator.interrupted() if one.knob is not None]

    def drift(self, facts: NodeFacts, pods: Sequence[Pod], policy: Policy, now_ns: int) -> list[Drift]:
        """Return the knobs that differ from their wanted values, the oldest drift first."""
        self._now_ns = now_ns
        basis = facts, pods, policy
        if self._basis is None or any(one is not other for one, other in zip(basis, self._basis, strict=True)):
            self._basis = basis
            self._dry_families = dry_run_families(facts, policy)
            self._want(wanted(facts, pods, policy), pods)
        if not self._wanted and not self._tuned.keys and not self._interrupted:
            return []
        self._compare(self._watched.read(now_ns, dict.fromkeys(key.group for key in self._drift)))
        self._settle_interrupted()
        due = [key for key, held in self._drift.items() if self._due(key, held, now_ns)]
        return [Drift(group=key.group, knob=key.knob, held=self._drift[key]) for key in due[:DRIFT_MAX]]

    def carry_out(self, settings: Sequence[WantedSetting], taken: Taken, origin: Origin, reason: str) -> None:
        """Apply settings, and report their outcomes and pending remarks."""
        for remark in self._remarks:
            wish = self._wish(remark.key)
            rule = wish.rule if wish else RELEASED
            begun = self._begun(taken, rule, remark.key, remark.held, "agent", bound=remark.bound)
            result = "failed" if remark.bound == LACKING else "refused"
            outcome = self._named(begun, result, remark.reason, remark.held)
            self._doors.report(outcome, taken)
        self._remarks = []
        due: list[WantedSetting] = []
        for one in settings:
            key = KnobKey(one.group, one.knob)
            ours = key in self._tuned.keys
            if (one.rule == RELEASED and not ours) or self._standoff.pauses(key, self._now_ns):
                continue
            # Restore a knob whose rule became a dry run after it was set, and the quota of a pod that lost its CPUs.
            restored = released(key, self._known) if ours and (self._is_dry(one) or self._lacks_cpus(one)) else None
            due.append(one if restored is None else restored)
        if not due:
            return
        # Burst rules restore quotas themselves.
        written = [one for one in due if one.rule != QUOTA_RULE and not self._only_reports(one, origin)]
        keys = [KnobKey(one.group, one.knob) for one in written]
        self._tuned.add(key for key in keys if released(key, self._known) is not None)
        given_back = [back for one in due if (back := self._set(one, taken, origin, reason)) is not None]
        self._tuned.drop(given_back)

    def give_back(self, taken: Taken, reason: str) -> None:
        """Restore all knobs to the values of the kubelet and the kernel."""
        if not self._tuned.keys:
            return
        held = self._kernel.held(sorted(self._tuned.keys)).values
        drift = [Drift(group=key.group, knob=key.knob, held=value) for key, value in held.items()]
        self.carry_out(changes(drift, {}, taken.pods), taken, "agent", reason)

    def _want(self, by_key: Mapping[KnobKey, WantedSetting], pods: Sequence[Pod]) -> None:
        """Recompute what is wanted after a change of facts, pods or policy."""
        self._kernel.know(pods)
        self._known = {pod.uid: pod for pod in pods}
        changed = {
            key
            for key in {*by_key, *self._wanted}
            if (one := by_key.get(key)) is None or (other := self._wanted.get(key)) is None or one.value != other.value
        }
        self._wanted = by_key
        # A pod that is no longer listed needs no restoring: its cgroups are deleted with it.
        self._tuned.drop([key for key in self._tuned.keys if released(key, self._known) is None])
        keys = sorted({*by_key, *self._tuned.keys})
        fresh = self._watched.watch(keys, self._known, {key.group for key in changed})
        self._standoff.forget(lambda key: key.group in fresh or key in changed)
        self._drift = {key: held for key, held in self._drift.items() if self._wish(key) is not None}
        self._dry_run_reported = {
            key: seen
            for key, seen in self._dry_run_reported.items()
            if key in by_key and self._only_reports(by_key[key], "stream")
        }
        self._lacking = {key: why for key, why in self._lacking.items() if key in by_key}

    def _wish(self, key: KnobKey) -> WantedSetting | None:
        """Return the wanted value, or the one to restore. The kernel refuses a weight with ``cpu.idle``."""
        idle = KnobKey(key.group, "cpu_idle")
        idles = self._wanted.get(idle)
        if key.knob == "cpu_shares" and idle not in self._lacking and idles and idles.value and not self._is_dry(idles):
            return None
        one = self._wanted.get(key)
        if key in self._tuned.keys and (one is None or self._is_dry(one) or self._lacks_cpus(one)):
            return released(key, self._known)
        return one

    def _compare(self, held: Held) -> None:
        """Update drift by the knobs just read, which include all that drifted before."""
        self._drift = {key: value for key, value in self._drift.items() if key in held.values}
        for key, value in held.values.items():
            self._lacking.pop(key, None)
            one = self._wish(key)
            if one is None or self._kernel.as_reads_back(key.knob, one.value) == value:
                self._drift.pop(key, None)
                self._standoff.calm(key, self._now_ns)
            else:
                self._drift[key] = value
        for key, why in held.lacking.items():
            self._lacking[key] = why
            if key.knob not in self._lacks_reported:
                self._lacks_reported.add(key.knob)
                self._remarks.append(_Remark(key, None, LACKING, f"the kernel lacks {key.knob}: {why}"))

    def _due(self, key: KnobKey, held: KnobValue | None, now_ns: int) -> bool:
        one = self._wish(key)
        if one is None or self._lacks_cpus(one) or self._dry_run_reported.get(key) == (held, one.value):
            return False
        move = self._standoff.sees(key, held, now_ns)
        if move == "fight":
            why = f"another process reset {key.knob} of {key.group} to {_shown(held)}: not written for a while"
            self._remarks.append(_Remark(key, held, FIGHT, why))
        return move == "set"

    def _set(self, one: WantedSetting, taken: Taken, origin: Origin, reason: str) -> KnobKey | None:
        """Set one knob. Return its key if it is restored."""
        key = KnobKey(one.group, one.knob)
        before = self._kernel.held([key]).values
        target = self._kernel.as_reads_back(one.knob, one.value)
        if key not in before or before[key] == target:
            self._drift.pop(key, None)
            return key if key in before and one.rule == RELEASED else None
        outcome = self._begun(
            taken, one.rule, key, before[key], origin, reason=reason, bound=one.bound, terms=one.terms
        )
        if self._only_reports(one, origin):
            if self._dry_run_reported.get(key) == (before[key], one.value):
                return None
            self._dry_run_reported[key] = before[key], one.value
            why = reason if self._dry_run else "; ".join(filter(None, (reason, BY_POLICY)))
            self._doors.report(self._named(outcome, "dry-run", why, one.value), taken)
            return None
        self._actuator.intend(self._changed(outcome, one.value))
        failure, after = self._put(key, one.value)
        if failure:
            self._standoff.refused(key, self._now_ns)
        else:
            self._standoff.left(key, after, self._now_ns)
            self._drift.pop(key, None)
        result = "failed" if failure else "applied"
        self._doors.report(self._named(outcome, result, failure or reason, after), taken)
        return key if one.rule == RELEASED and not failure else None

    def _put(self, key: KnobKey, value: KnobValue | None) -> tuple[str, KnobValue | None]:
        """Write and read back. Return the error ("": none) and the value now."""
        try:
            self._kernel.put(key, value)
            failure = ""
        except CgroupError as error:
            failure = str(error)
        after = self._kernel.held([key]).values.get(key)
        if not failure and after != self._kernel.as_reads_back(key.knob, value):
            failure = f"is {_shown(after)} after {_shown(value)} was written"
        return failure, after

    def _is_dry(self, one: WantedSetting) -> bool:
        return family_of(one.rule) in self._dry_families

    def _lacks_cpus(self, one: WantedSetting) -> bool:
        """Return whether a quota must stay, because the pod does not have the CPUs that would limit it instead."""
        if one.rule != CPUSET or one.knob != "cfs_quota_us":
            return False
        cpus = KnobKey(pod_group(uid_of(one.group)), "cpus")
        return cpus in self._drift or cpus in self._lacking

    def _only_reports(self, one: WantedSetting, origin: Origin) -> bool:
        """Return whether to report it and not write it. The agent's own restoring is always written."""
        return self._dry_run or (origin != "agent" and self._is_dry(one))

    def _settle_interrupted(self) -> None:
        """Report the result of settings that the last run began and did not finish, as read from the kernel."""
        for intent in self._interrupted:
            change = intent.knob
            assert change is not None
            key = KnobKey(intent.target, change.knob)
            held = self._kernel.held([key]).values
            done = key in held and held[key] == self._kernel.as_reads_back(key.knob, change.after)
            settled = self._changed(intent, held.get(key))
            reason = "the agent stopped before the result was known; the knob was read at its next start"
            result = "applied" if done else "failed"
            self._actuator.conclude(msgspec.structs.replace(settled, result=result, reason=reason))
        self._interrupted = []

    def _begun(
        self,
        taken: Taken,
        rule: str,
        key: KnobKey,
        held: KnobValue | None,
        origin: Origin,
        *,
        reason: str = "",
        bound: str = "",
        terms: Terms | None = None,
    ) -> NodeOutcome:
        id_ = self._doors.reporter.id_of(taken, rule, key.target)
        outcome = self._doors.reporter.begun(
            taken, rule, key.group, origin, reason=reason, bound=bound, terms=terms, id_=id_
        )
        return msgspec.structs.replace(outcome, knob=KnobChange(knob=key.knob, before=held, after=held))

    def _changed(self, outcome: NodeOutcome, after: KnobValue | None) -> NodeOutcome:
        assert outcome.knob is not None
        change = msgspec.structs.replace(outcome.knob, after=after)
        return msgspec.structs.replace(outcome, knob=change, result="applied")

    def _named(self, outcome: NodeOutcome, result: str, reason: str, after: KnobValue | None) -> NodeOutcome:
        ended = msgspec.structs.replace(self._changed(outcome, after), result=result, reason=reason)
        pod = self._known.get(uid_of(outcome.target))
        if pod is None:
            return ended
        return msgspec.structs.replace(ended, pod=PodName(namespace=pod.namespace, name=pod.name))


def _shown(value: KnobValue | None) -> str:
    return "unlimited" if value is None else str(value)
