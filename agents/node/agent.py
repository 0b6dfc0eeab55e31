"""The node agent's core: takes samples, applies commands, and acts as guard. Synchronous; loop.py runs it.

The agent decides on each sample with the same function as the workers. It applies a command that is in order, has the
agent's policy version, and gives best-effort pods no more than the agent's own decision. Otherwise it applies its own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from slacktide.agents.clock import Clock
from slacktide.agents.credit_account import CreditAccount
from slacktide.agents.node.evict.eviction_client import EvictionApi
from slacktide.agents.node.evict.evictor import BY_POLICY, Evictor
from slacktide.agents.node.evict.victims import Standing
from slacktide.agents.node.forecast import TRAIN_EVERY_MS
from slacktide.agents.node.interfaces import Beside, Kernel, Reading, Spool
from slacktide.agents.node.knobs import Bursts, Tuned
from slacktide.agents.node.protocol import Inventory, Protocol, Remembered, Sampler, Taken, accepted, inventory_of
from slacktide.agents.node.reporter import Actuator, Doors, Refusals, Reporter
from slacktide.agents.node.tuner import Tuner
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.knob_table import Knob
from slacktide.schemas.outcome import NodeOutcome, Origin
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import cpu_burst_on, resource_threshold_on
from slacktide.schemas.sample import KEYFRAME_MS, Limits, NodeSample
from slacktide.streams.decisions.burst.node_burst import handed_back
from slacktide.streams.decisions.cpu_list import cpu_ranges
from slacktide.streams.decisions.evict.node_evict import Eviction
from slacktide.streams.decisions.knobs import WantedSetting
from slacktide.streams.decisions.node_decision import NodeDecision, decide_node
from slacktide.streams.decisions.suppress.cpu_suppress import AHEAD, RULE, TARGET, UNLIMITED, lifted
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import kept_off, off_exclusive

NOTHING_BESIDE = Beside()
NO_PODS = "no pods"
NO_FACTS = "no facts"
SUSPEND = "suspend"
EXCLUSIVE = "exclusive_cpus"
"""Rule name: best-effort pods leave CPUs at once that the kubelet assigned exclusively to another pod."""
DRY_RUN = "dry-run"
"""Rule name: a limit set before the policy became a dry run is lifted."""
_OFF = Policy(version="")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Settings of one node agent."""

    guard_deadline_ms: int = 1_000
    """How long a sample waits for its command before the guard decides."""
    keyframe_ms: int = KEYFRAME_MS
    """How often a sample carries unchanged pods and facts."""
    dry_run: bool = False
    grace_ms_max: int = 30_000
    """Upper limit of an evicted pod's termination grace period."""
    train_every_ms: int = TRAIN_EVERY_MS
    """The interval that one sample of the usage forecast model covers."""
    restore_on_exit: bool = False


class NodeAgent:
    """One node's agent between its kernel, its spool and Kafka."""

    def __init__(  # noqa: PLR0913 - each is a different outside thing
        self,
        *,
        node: str,
        boot_id: str,
        kernel: Kernel,
        spool: Spool,
        clock: Clock,
        policy: Policy,
        facts: NodeFacts,
        pods: Sequence[Pod],
        settings: AgentSettings,
        tuned: Tuned | None = None,
        eviction_client: EvictionApi | None = None,
        concluded: Callable[[NodeOutcome], None] = lambda _: None,
        exclusive: Mapping[str, str] | None = None,
    ) -> None:
        self.node = node
        self.boot_id = boot_id
        self.credit_account = CreditAccount(boot_id)
        self._clock = clock
        self._settings = settings
        self._policy = policy
        self._processors = kernel.processors()
        self.exclusive: Mapping[str, str] = exclusive or {}
        """CPU lists assigned exclusively to pods, by uid."""
        self._refusals = Refusals()
        self._protocol = Protocol(node=node, boot_id=boot_id, deadline_ns=settings.guard_deadline_ms * 1_000_000)
        self._actuator = Actuator(
            kernel=kernel, spool=spool, mono_ns=clock.mono_ns, dry_run=settings.dry_run, concluded=concluded
        )
        self._sampler = Sampler(
            node=node,
            boot_id=boot_id,
            kernel=kernel,
            clock=clock,
            keyframe_ms=settings.keyframe_ms,
            inventory=self._inventory_of(facts, pods),
            remembered=self._remembered,
        )
        self._reporter = Reporter(node=node, boot_id=boot_id, clock=clock, event_time=self._sampler.event_time)
        self._reporter.policy_version = policy.version
        self._doors = Doors(
            best_effort=kernel.best_effort,
            actuator=self._actuator,
            reporter=self._reporter,
            refusals=self._refusals,
            mono_ns=clock.mono_ns,
        )
        self._evictor = Evictor(
            self._doors,
            eviction_client,
            self.credit_account,
            grace_ms_max=settings.grace_ms_max,
            dry_run=settings.dry_run,
        )
        self._tuner = Tuner(kernel, self._doors, tuned or Tuned(), dry_run=settings.dry_run)
        self._bursts = Bursts(node=node, boot_id=boot_id, kernel=kernel)
        self._suspended, self._bursts_held, self._bursts_dry_run = "", False, False

    @property
    def in_charge(self) -> Origin:
        """``stream`` or ``guard``."""
        return self._protocol.in_charge

    @property
    def facts(self) -> NodeFacts:
        """The current facts, which the next sample refers to."""
        return self._sampler.inventory.facts

    @property
    def pods(self) -> Sequence[Pod]:
        """The current pod list, which the next sample refers to."""
        return self._sampler.inventory.pods

    @property
    def awaits_answer(self) -> bool:
        """Whether the newest sample is not answered yet."""
        return self._protocol.awaits_answer

    @property
    def keyframe_wanted(self) -> bool:
        """Whether the stream lacks pods or facts, so that a sample must be taken at once."""
        return self._sampler.keyframe_wanted

    @property
    def evicting(self) -> Standing:
        """How many pods are terminating or held back."""
        return self._evictor.standing

    @property
    def knobs_lacking(self) -> Mapping[Knob, int]:
        """How many cgroups lack each wanted knob."""
        return self._tuner.lacking

    def inventory(self, facts: NodeFacts, pods: Sequence[Pod], exclusive: Mapping[str, str] | None = None) -> None:
        """Update facts, pods and exclusive CPU lists by uid (None: unchanged). The next sample carries the change."""
        self.exclusive = self.exclusive if exclusive is None else exclusive
        self._sampler.inventory = self._inventory_of(facts, pods)
        self._leave_exclusive()

    def policy(self, policy: Policy) -> None:
        """Switch to this policy."""
        self._policy = policy
        self._reporter.policy_version = policy.version

    def suspend(self, reason: str) -> None:
        """Lift all limits, thaw held pods, and begin no eviction; "": resume. Evictions already begun continue."""
        if reason == self._suspended:
            return
        self._suspended, self._bursts_held = reason, True
        self._evictor.suspend(reason)
        newest = self._protocol.newest
        if reason and newest is not None:
            self._hold_nothing(newest)

    def credit(self, credit: EvictionCredit, since_ns: int) -> None:
        """Receive eviction credit. ``since_ns``: a time before the grant, from which the lease counts."""
        self.credit_account.receive(credit, since_ns)

    def replied(self) -> None:
        """Process replies of the Eviction API at once."""
        self._evictor.settle()

    def start(self) -> None:
        """Settle what the last run left open. Call once, before the first sample."""
        self._actuator.settle_interrupted()
        self._tuner.start()
        self._evictor.start()

    def take(self, beside: Beside = NOTHING_BESIDE, *, early: bool = False) -> NodeSample:
        """Take a sample. Act on it if the guard is in charge; if it is ``early``, cut the limit without waiting."""
        self.overdue()
        now_ns = self._clock.mono_ns()
        for outcome in self._refusals.due(now_ns):
            self._actuator.conclude(outcome)
        self._evictor.look()
        taken = self._sampler.take(
            now_ns=now_ns,
            limits=self._actuator.limits,
            policy_version=self._policy.version,
            since_raise_ms=self._actuator.since_raise_ms(now_ns),
            beside=beside,
        )
        self._actuator.limits = taken.sample.limits
        self._protocol.took(taken)
        if self._protocol.in_charge == "guard":
            self._guard("the guard is in charge")
        elif early and not self._suspended:
            self._cut(taken, now_ns)
        return taken.sample

    def deadline_ns(self) -> int | None:
        """Return when ``overdue`` must be called, monotonic."""
        return self._protocol.deadline_ns()

    def overdue(self) -> None:
        """If the deadline has passed, the guard takes charge and acts on the newest sample."""
        if self._protocol.overdue(self._clock.mono_ns()):
            self._guard(f"no answer within {self._settings.guard_deadline_ms} ms")

    def answered(self, command: NodeCommand) -> None:
        """Apply a command, or the agent's own decision instead, or refuse the command."""
        self.overdue()
        now_ns = self._clock.mono_ns()
        verdict = self._protocol.judge(command, now_ns)
        if command.answer == "skipped" and command.boot_id == self.boot_id and command.reason in {NO_PODS, NO_FACTS}:
            # Request a keyframe for what the stream lacks, unless that sample carried it.
            taken = self._protocol.held(command.seq)
            if taken is not None and (taken.sample.pods is None or taken.sample.facts is None):
                self._sampler.keyframe_wanted = True
        if isinstance(verdict, Taken):
            self._answer(command, verdict, now_ns)
        else:
            self._refusals.add(self._reporter.refused(command, verdict, RULE, TARGET), now_ns)

    @property
    def holds_nothing(self) -> bool:
        """Whether no limit of this agent is in force, as last read back from the kernel."""
        limits = self._actuator.limits
        return limits is not None and limits.be_cfs_quota_us is None and not self._tuner.holds

    def close(self, *, removed: bool = False) -> None:
        """Thaw frozen pods and report pending refusals. Lift limits if ``removed`` or if the settings require it."""
        self._evictor.close()
        for outcome in self._refusals.due(self._clock.mono_ns(), everything=True):
            self._actuator.conclude(outcome)
        newest = self._protocol.newest
        if (removed or self._settings.restore_on_exit) and newest is not None:
            reason = "the agent is being removed" if removed else "the agent stops"
            self._give_back(newest, "restore", "restored", reason)

    def _give_back(self, newest: Taken, rule: str, bound: str, reason: str, *, bursts: bool = True) -> None:
        """Lift the limit and restore all knobs; ``bursts``: raised quotas, too."""
        self._lift(newest, rule, bound, reason)
        self._tuner.give_back(newest, reason)
        if bursts:
            self._hand_bursts_back(newest, reason)

    def _hold_nothing(self, newest: Taken) -> None:
        self._give_back(newest, SUSPEND, "suspended", f"suspended by {self._suspended}", bursts=self._bursts_held)
        self._bursts_held = False

    def _lift(self, newest: Taken, rule: str, bound: str, reason: str) -> None:
        outcome = self._reporter.begun(newest, rule, TARGET, "agent", reason=reason, bound=bound)
        self._doors.limit(self._unlimited(newest), outcome, newest)

    def _unlimited(self, newest: Taken) -> Limits:
        return lifted(self._actuator.limits or UNLIMITED, newest.facts, newest.pods)

    def _hand_bursts_back(self, newest: Taken, reason: str) -> None:
        above = self._bursts.above_limit(newest.pods, self._clock.mono_ns())
        self._tuner.carry_out(handed_back(above, newest.pods), newest, "agent", reason)

    def _leave_exclusive(self) -> None:
        """Move best-effort pods off exclusive CPUs at once, without waiting for a command."""
        newest, limits, inventory = self._protocol.newest, self._actuator.limits, self._sampler.inventory
        if newest is None or limits is None or self._suspended:
            return
        wanted = off_exclusive(limits, inventory.facts, inventory.pods)
        if wanted is limits or resource_threshold_on(self._policy, inventory.facts).cpu_suppress_dry_run:
            return
        cpus = cpu_ranges(kept_off(inventory.facts, inventory.pods))
        id_ = self._reporter.id_of(newest, EXCLUSIVE, f"{TARGET}/{cpus}")
        reason = f"pods have exclusive CPUs {cpus}"
        outcome = self._reporter.begun(newest, EXCLUSIVE, TARGET, "agent", reason=reason, bound=EXCLUSIVE, id_=id_)
        self._doors.limit(wanted, outcome, newest)

    def _inventory_of(self, facts: NodeFacts, pods: Sequence[Pod]) -> Inventory:
        """Return the facts with the CPU topology, which only the node itself knows."""
        return inventory_of(msgspec.structs.replace(facts, processors=self._processors), pods, self.exclusive)

    def _remembered(self, reading: Reading, inventory: Inventory, now_ns: int) -> Remembered:
        facts, pods, policy = inventory.facts, inventory.pods, self._policy
        self._evictor.saw(reading, facts, pods, policy, now_ns)
        if self._suspended:
            policy = _OFF
        bursts = self._bursts.state(facts, pods, policy, now_ns)
        return Remembered(
            evict=self._evictor.state(now_ns),
            drift=self._tuner.drift(facts, pods, policy, now_ns),
            burst=bursts.containers,
            missing=bursts.missing,
        )

    def _current(self, taken: Taken, now_ns: int) -> NodeSample:
        """Return a sample with the limits in force now, since an act may have changed them."""
        return msgspec.structs.replace(
            taken.sample,
            limits=self._actuator.limits,
            since_raise_ms=self._actuator.since_raise_ms(now_ns),
            evict=self._evictor.state(now_ns),
        )

    def _answer(self, command: NodeCommand, taken: Taken, now_ns: int) -> None:
        current = self._current(taken, now_ns)
        own = decide_node(current, taken.facts, taken.pods, self._policy)
        if command.answer == "skipped":
            self._settle_own(own, taken, f"skipped: {command.reason}")
        elif command.policy_version != self._policy.version:
            self._settle_own(own, taken, "other policy")
        elif (agreed := accepted(command, taken, current, own)) is None:
            self._settle_own(own, taken, "disagrees")
        else:
            # Not the id in the command: two commands with one id would become one act with two outcomes.
            id_ = self._reporter.id_of(taken, *((RULE, TARGET) if command.hold else ("answer", self.node)))
            hold, evict, settings = agreed
            outcome = self._reporter.begun(
                taken, hold.rule, TARGET, "stream", bound=hold.bound, terms=hold.terms, id_=id_
            )
            self._settle(hold.limits, outcome, evict, settings, taken)

    def _settle_own(self, own: NodeDecision, taken: Taken, reason: str) -> None:
        limit = own.limits
        why = reason if limit.reason in reason else f"{reason}; {limit.reason}"
        outcome = self._reporter.begun(taken, RULE, TARGET, "guard", reason=why, bound=limit.bound, terms=limit.terms)
        self._settle(limit.limits, outcome, own.evict, own.settings, taken, reason=reason)

    def _guard(self, reason: str) -> None:
        newest = self._protocol.newest
        if newest is None or self._protocol.settled(newest.sample.seq):
            return
        current = self._current(newest, self._clock.mono_ns())
        self._settle_own(decide_node(current, newest.facts, newest.pods, self._policy), newest, reason)

    def _cut(self, taken: Taken, now_ns: int) -> None:
        """Apply the agent's own decision where it only cuts the limit. The answer follows, and may do the rest."""
        threshold = resource_threshold_on(self._policy, taken.facts)
        limit = decide_node(self._current(taken, now_ns), taken.facts, taken.pods, self._policy).limits
        if limit.limits is None or threshold.cpu_suppress_dry_run or not self._actuator.only_cuts(limit.limits):
            return
        self._protocol.precede(taken.sample.seq)
        outcome = self._reporter.begun(
            taken, AHEAD, TARGET, "agent", reason="a cut ahead of the answer", bound=limit.bound, terms=limit.terms
        )
        self._doors.limit(limit.limits, outcome, taken)

    def _settle(
        self,
        limits: Limits | None,
        outcome: NodeOutcome,
        evict: Sequence[Eviction],
        settings: Sequence[WantedSetting],
        taken: Taken,
        *,
        reason: str = "",
    ) -> None:
        """Carry out a decision. ``limits`` None: none can be computed, so nothing is changed."""
        origin = outcome.origin
        self._protocol.settle(taken.sample.seq, by_guard=origin == "guard")
        if self._suspended:
            self._hold_nothing(taken)
            return
        if resource_threshold_on(self._policy, taken.facts).cpu_suppress_dry_run:
            # Lift a limit that was set before the policy became a dry run, and only report the decided one.
            if self._actuator.exceeds(self._unlimited(taken)):
                self._lift(taken, DRY_RUN, "restored", BY_POLICY)
            why = f"{outcome.reason}; {BY_POLICY}" if outcome.reason else BY_POLICY
            self._doors.limit(limits, msgspec.structs.replace(outcome, reason=why), taken, dry_run=True)
        else:
            self._doors.limit(limits, outcome, taken)
        self._evictor.carry_out(evict, taken, origin, reason)
        # Restore quotas once that bursts raised before the policy made them a dry run.
        before, self._bursts_dry_run = self._bursts_dry_run, cpu_burst_on(self._policy, taken.facts).dry_run
        if self._bursts_dry_run and not before:
            self._hand_bursts_back(taken, BY_POLICY)
        self._tuner.carry_out(settings, taken, origin, reason)
