"""Creates outcomes, and sets the best-effort limit: intent to the spool, then the kernel, read-back, outcome."""

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import msgspec

from slacktide.agents.clock import Clock, EventTime
from slacktide.agents.node.interfaces import BestEffortPods, Kernel, Spool
from slacktide.agents.node.protocol import Taken
from slacktide.schemas.command import NodeCommand, command_id
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.knob import pod_group, uid_of
from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import NodeOutcome, Origin, PodName
from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.evict.node_evict import Eviction, observed
from slacktide.streams.decisions.suppress.cpu_suppress import capped, looser

log = logging.getLogger(__name__)


class Reporter:
    """Creates outcomes and sets their time."""

    def __init__(self, *, node: str, boot_id: str, clock: Clock, event_time: EventTime) -> None:
        self.policy_version = ""
        self._node = node
        self._boot_id = boot_id
        self._clock = clock
        self._event_time = event_time

    def id_of(self, taken: Taken, rule: str, target: str) -> str:
        """Return the id of a decision: the same for stream and guard."""
        return command_id(self._node, self._boot_id, taken.sample.seq, rule, target, self.policy_version)

    def begun(
        self,
        taken: Taken,
        rule: str,
        target: str,
        origin: Origin,
        *,
        reason: str = "",
        bound: str = "",
        terms: Terms | None = None,
        id_: str = "",
    ) -> NodeOutcome:
        """Return an outcome as known before the act: ``unchanged``, without time.

        ``reason``: why the guard decided; "": it did not. ``id_``: "": the decision's id.
        """
        return NodeOutcome(
            node=self._node,
            boot_id=self._boot_id,
            seq=taken.sample.seq,
            command_id=id_ or self.id_of(taken, rule, target),
            rule=rule,
            target=target,
            origin=origin,
            result="unchanged",
            reason=reason,
            policy_version=self.policy_version,
            observed_ms=taken.sample.observed_ms,
            acted_ms=0,
            age_ms=0,
            bound=bound,
            terms={} if terms is None else terms,
        )

    def begun_on(self, victim: Eviction, taken: Taken, origin: Origin, reason: str, *, bound: str = "") -> NodeOutcome:
        """Return the outcome of an act on a victim, as known before it; ``bound``: "" for the decision's own."""
        pod, bound = victim.pod, bound or victim.bound
        begun = self.begun(
            taken, victim.rule, pod_group(pod.uid), origin, reason=reason, bound=bound, terms=victim.terms
        )
        return msgspec.structs.replace(begun, pod=PodName(namespace=pod.namespace, name=pod.name))

    def dated(self, outcome: NodeOutcome, taken: Taken | None) -> NodeOutcome:
        """Return the outcome with the time now and the sample's age. ``taken`` None: a sample of an earlier run."""
        now_ns = self._clock.mono_ns()
        age_ms = outcome.age_ms if taken is None else (now_ns - taken.taken_ns) // 1_000_000
        return msgspec.structs.replace(outcome, acted_ms=self._event_time.of(now_ns), age_ms=age_ms)

    def refused(self, command: NodeCommand, cause: str, rule: str, target: str) -> NodeOutcome:
        """Return the outcome of a refused command."""
        return NodeOutcome(
            node=self._node,
            boot_id=self._boot_id,
            seq=command.seq,
            command_id=command.hold[0].id if command.hold else command.id,
            rule=rule,
            target=target,
            origin="stream",
            result="refused",
            reason=cause,
            policy_version=command.policy_version,
            observed_ms=command.observed_ms or command.decided_ms,  # one that keeps leaves its sample's time out
            acted_ms=self._event_time.of(self._clock.mono_ns()),
            age_ms=0,
        )


SHARE_NS = 1_000_000_000


class Refusals:
    """Delays the first refusal of each cause by a second, and counts the others."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, NodeOutcome]] = {}

    def add(self, outcome: NodeOutcome, now_ns: int) -> None:
        """Count one refusal; its cause is the outcome's reason."""
        since_ns, first = self._held.get(outcome.reason, (now_ns, None))
        counted = outcome if first is None else msgspec.structs.replace(first, count=first.count + 1)
        self._held[outcome.reason] = (since_ns, counted)

    def due(self, now_ns: int, *, everything: bool = False) -> list[NodeOutcome]:
        """Take out the refusals that are due."""
        ripe = [cause for cause, (since_ns, _) in self._held.items() if everything or now_ns - since_ns >= SHARE_NS]
        return [self._held.pop(cause)[1] for cause in ripe]


class Paced:
    """Allows one outcome per kind and second, the first at once. The next one counts those skipped."""

    def __init__(self) -> None:
        self._reported: dict[Hashable, tuple[int, int]] = {}

    def count(self, kind: Hashable, now_ns: int) -> int:
        """Return the outcomes that this one stands for if it may be reported now; else 0."""
        reported_ns, skipped = self._reported.get(kind, (now_ns - SHARE_NS, 0))
        may = now_ns - reported_ns >= SHARE_NS
        self._reported[kind] = (now_ns, 0) if may else (reported_ns, skipped + 1)
        return skipped + 1 if may else 0


Key = tuple[str, str, str]


def key_of(outcome: NodeOutcome) -> Key:
    """Return the key that an intent and its outcome share."""
    return outcome.command_id, outcome.rule, outcome.target


def pod_of(outcome: NodeOutcome) -> str:
    """Return the uid of the pod of an act."""
    return uid_of(outcome.target)


def ends_or_stops(outcome: NodeOutcome) -> bool:
    """Return whether an act evicts, freezes or thaws a pod."""
    return outcome.pod is not None and outcome.knob is None


def reason_of(outcome: NodeOutcome) -> str:
    """Return the observed value, threshold and reason, for the agent's log and Events."""
    return "; ".join(filter(None, (observed(outcome.terms), outcome.reason)))


def log_act_on_pod(outcome: NodeOutcome) -> None:
    """Log an act that evicts, freezes or thaws a pod, for readers who search the node's log for a pod.

    Details are in the outcome.
    """
    if ends_or_stops(outcome) and outcome.result in {"applied", "failed"}:
        pod, names = outcome.pod, ("rule", "bound", "result", "command_id")
        assert pod is not None
        extra = {name: getattr(outcome, name) for name in names}
        log.warning("pod %s/%s: %s", pod.namespace, pod.name, reason_of(outcome), extra=extra)


def sub_act(outcome: NodeOutcome, what: str) -> NodeOutcome:
    """Return the outcome of another act of the same decision, with its own id."""
    id_ = command_id(
        outcome.node, outcome.boot_id, outcome.seq, outcome.rule, f"{outcome.target}/{what}", outcome.policy_version
    )
    return msgspec.structs.replace(outcome, command_id=id_)


THROTTLED = "throttled"


class Actuator:
    """Changes a node's best-effort limit, and reports outcomes of all acts."""

    def __init__(
        self,
        *,
        kernel: Kernel,
        spool: Spool,
        mono_ns: Callable[[], int],
        dry_run: bool,
        concluded: Callable[[NodeOutcome], None],
    ) -> None:
        self.limits: Limits | None = None
        self.decided: Limits | None = None
        self.cap_us: int | None = None
        """Upper limit of the quota; None: the decided quota is set."""
        self._kernel = kernel
        self._spool = spool
        self._mono_ns = mono_ns
        self._dry_run = dry_run
        self._concluded = concluded
        self._raised_ns: int | None = None

    def since_raise_ms(self, now_ns: int) -> int | None:
        """Return the time since this agent last raised the limit; None: never."""
        return None if self._raised_ns is None else (now_ns - self._raised_ns) // 1_000_000

    def exceeds(self, limits: Limits | None) -> bool:
        """Return whether the kernel's limits are tighter than these limits and the cap."""
        wanted = None if limits is None else self._capped(limits)
        return wanted is not None and self.limits is not None and looser(wanted, self.limits)

    def only_cuts(self, limits: Limits) -> bool:
        """Return whether these limits are tighter than the kernel's, and in nothing looser."""
        held, wanted = self.limits, self._below_cap(limits)
        return held is not None and looser(held, wanted) and not looser(wanted, held)

    def settle_interrupted(self) -> None:
        """Report the result of acts that the last run began and did not finish, as read from the kernel."""
        for intent in self._spool.interrupted():
            if not intent.about_limit:  # an act of the tuner or the evictor
                continue
            after = self._read_back()
            done = after is not None and intent.after is not None and not _differ(after, intent.after)
            reason = "the agent stopped before the result was known; the limit was read at its next start"
            self.conclude(
                msgspec.structs.replace(intent, result="applied" if done else "failed", reason=reason, after=after)
            )

    def perform(
        self,
        limits: Limits | None,
        outcome: NodeOutcome,
        *,
        dated: Callable[[NodeOutcome], NodeOutcome],
        dry_run: bool = False,
    ) -> None:
        """Set limits if they differ from those in force; None: none can be computed, so nothing is changed.

        ``dated`` adds the time to the outcome, again after read-back.
        """
        before, wanted = self.limits, limits if dry_run else self._capped(limits)
        bound = outcome.bound if wanted == limits else THROTTLED
        outcome = dated(msgspec.structs.replace(outcome, before=before, after=before, bound=bound))
        if wanted is None or before is None or not _differ(wanted, before):
            self.conclude(outcome)
        elif self._dry_run or dry_run:
            self.conclude(msgspec.structs.replace(outcome, result="dry-run"))
        else:
            self.intend(msgspec.structs.replace(outcome, result="applied", after=wanted))
            failure = self._write(wanted)
            after = self.limits = self._read_back()
            if not failure and (after is None or _differ(after, wanted)):
                failure = "the kernel reports another value than was written"
            if after is None or looser(after, before):
                self._raised_ns = self._mono_ns()
            result = "failed" if failure else "applied"
            reason = failure or outcome.reason
            self.conclude(dated(msgspec.structs.replace(outcome, result=result, reason=reason, after=after)))

    def intend(self, outcome: NodeOutcome) -> None:
        """Record an act before it happens, with its intended outcome."""
        self._spool.intend(outcome)

    def interrupted(self) -> list[NodeOutcome]:
        """Return the acts that the last run began and did not finish."""
        return self._spool.interrupted()

    def conclude(self, outcome: NodeOutcome) -> None:
        """Write an outcome to the spool and count it."""
        self._spool.conclude(outcome)
        self._concluded(outcome)

    def _capped(self, limits: Limits | None) -> Limits | None:
        if limits is None:
            return None
        self.decided = limits
        return self._below_cap(limits)

    def _below_cap(self, limits: Limits) -> Limits:
        return limits if self.cap_us is None else capped(limits, self.cap_us)

    def _write(self, limits: Limits) -> str:
        try:
            self._kernel.hold(limits)
        except CgroupError as exc:
            return str(exc)
        return ""

    def _read_back(self) -> Limits | None:
        try:
            return self._kernel.limits()
        except CgroupError:
            return None


def _differ(one: Limits, other: Limits) -> bool:
    return looser(one, other) or looser(other, one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What an agent's parts act on and report to."""

    best_effort: BestEffortPods
    actuator: Actuator
    reporter: Reporter
    refusals: Refusals
    mono_ns: Callable[[], int]

    def report(self, outcome: NodeOutcome, taken: Taken | None) -> None:
        """Conclude an act with the time now; ``taken`` None: an act of an earlier run."""
        self.actuator.conclude(self.reporter.dated(outcome, taken))

    def limit(self, limits: Limits | None, outcome: NodeOutcome, taken: Taken, *, dry_run: bool = False) -> None:
        """Set the best-effort limit: see ``Actuator.perform``."""
        self.actuator.perform(limits, outcome, dated=lambda report: self.reporter.dated(report, taken), dry_run=dry_run)
