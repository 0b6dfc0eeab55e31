"""The node agent's core: takes samples, applies answers, guards. Synchronous; its shell is loop.py.

On every sample the agent computes its own result with the function that the stream uses. An answer
acts when it is in order, of the agent's policy, and gives best-effort pods no more than that result;
otherwise the agent's own result acts and the outcome says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from slacktide.agents.clock import Clock
from slacktide.agents.node.actuator import Act, Actuator
from slacktide.agents.node.kernel import Kernel
from slacktide.agents.node.protocol import Protocol, Taken
from slacktide.agents.node.refusals import Refusals
from slacktide.agents.node.sampler import Inventory, Sampler, inventory_of
from slacktide.agents.node.spool import Spool
from slacktide.schemas.command import Hold, NodeCommand, command_id
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.outcome import NodeOutcome, Origin
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.streams.decisions.be_limits import looser
from slacktide.streams.decisions.cpu_suppress import RULE, TARGET, UNLIMITED, Decision, decide, lifted

NO_PODS = "no pods"
NO_FACTS = "no facts"
QUOTA_US_MIN, PERIOD_US_MIN, PERIOD_US_MAX = 1_000, 1_000, 1_000_000
"""What the kernel takes, on cgroup v1 and v2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How one node agent behaves."""

    guard_deadline_ms: int = 1_000
    """How long a sample may wait for its answer before the guard takes charge."""
    keyframe_ms: int = 10_000
    """How often a sample carries pods and facts although they did not change."""
    dry_run: bool = False
    """Decide and report, write nothing."""
    restore_on_exit: bool = False
    """Lift the best-effort limit when the agent stops."""


class NodeAgent:
    """One node's agent between its kernel, its spool and the log."""

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
        heard: Callable[[NodeOutcome], None] = lambda _: None,
    ) -> None:
        self.node = node
        self.boot_id = boot_id
        self._clock = clock
        self._settings = settings
        self._policy = policy
        self._processors = kernel.processors()
        self._refusals = Refusals()
        self._protocol = Protocol(node=node, boot_id=boot_id, deadline_ns=settings.guard_deadline_ms * 1_000_000)
        self._actuator = Actuator(
            kernel=kernel, spool=spool, mono_ns=clock.mono_ns, dry_run=settings.dry_run, heard=heard
        )
        self._sampler = Sampler(
            node=node,
            boot_id=boot_id,
            kernel=kernel,
            clock=clock,
            keyframe_ms=settings.keyframe_ms,
            inventory=self._inventory_of(facts, pods),
        )

    @property
    def in_charge(self) -> Origin:
        """``stream`` or ``guard``."""
        return self._protocol.in_charge

    @property
    def keyframe_wanted(self) -> bool:
        """The stream lacks the pods or the facts: take a sample at once."""
        return self._sampler.keyframe_wanted

    @property
    def policy_version(self) -> str:
        """The policy that the agent decides by."""
        return self._policy.version

    def inventory(self, facts: NodeFacts, pods: Sequence[Pod]) -> None:
        """The node or its pods may have changed; the next sample says so."""
        self._sampler.inventory = self._inventory_of(facts, pods)

    def policy(self, policy: Policy) -> None:
        """Decide by this policy from now on."""
        self._policy = policy

    def start(self) -> None:
        """Settle what the last run left open. Once, before the first sample."""
        self._actuator.settle_interrupted()

    def take(self) -> NodeSample:
        """One tick: read the kernel, say what was seen, and act on it where the guard is in charge."""
        self.overdue()
        now_ns = self._clock.mono_ns()
        for outcome in self._refusals.due(now_ns):
            self._actuator.conclude(outcome)
        taken = self._sampler.take(
            now_ns=now_ns,
            limits=self._actuator.limits,
            policy_version=self._policy.version,
            since_raise_ms=self._actuator.since_raise_ms(now_ns),
        )
        self._actuator.limits = taken.sample.limits
        self._protocol.took(taken)
        if self._protocol.in_charge == "guard":
            self._guard("the guard is in charge")
        return taken.sample

    def deadline_ns(self) -> int | None:
        """The monotonic instant at which ``overdue`` is due."""
        return self._protocol.deadline_ns()

    def overdue(self) -> None:
        """The deadline may have passed: if so, the guard takes charge and acts on the newest sample."""
        if self._protocol.overdue(self._clock.mono_ns()):
            self._guard(f"no answer within {self._settings.guard_deadline_ms} ms")

    def answered(self, command: NodeCommand) -> None:
        """Apply the stream's answer, or the agent's own result in its place, or refuse it."""
        self.overdue()
        now_ns = self._clock.mono_ns()
        verdict = self._protocol.judge(command, now_ns)
        if command.answer == "skipped" and command.boot_id == self.boot_id:
            self._lacking(command)
        if isinstance(verdict, Taken):
            act = self._chosen(command, verdict, self._own(verdict, now_ns))
            self._settle(act, verdict)
        else:
            self._refusals.add(self._refused(command, verdict), now_ns)

    def close(self) -> None:
        """Say what is still held back; lift the limit where asked to."""
        for outcome in self._refusals.due(self._clock.mono_ns(), everything=True):
            self._actuator.conclude(outcome)
        newest = self._protocol.newest
        if self._settings.restore_on_exit and newest is not None:
            act = Act(
                limits=lifted(self._actuator.limits or UNLIMITED, newest.facts, newest.pods),
                id=self._id(newest, "restore"),
                rule="restore",
                origin="agent",
                reason="the agent stops",
                bound="restored",
                terms={},
            )
            self._perform(act, newest)

    def _inventory_of(self, facts: NodeFacts, pods: Sequence[Pod]) -> Inventory:
        """The facts with what only the node itself knows of its CPUs."""
        return inventory_of(msgspec.structs.replace(facts, processors=self._processors), pods)

    def _lacking(self, command: NodeCommand) -> None:
        """Want a keyframe where the stream lacks pods or facts, unless that very sample carried them."""
        taken = self._protocol.held(command.seq)
        if taken is not None and command.reason in {NO_PODS, NO_FACTS}:
            lean = taken.sample.pods is None or taken.sample.facts is None
            self._sampler.keyframe_wanted = self._sampler.keyframe_wanted or lean

    def _own(self, taken: Taken, now_ns: int) -> Decision:
        """The agent's result for a sample, by what holds now: an act may have come between."""
        current = msgspec.structs.replace(
            taken.sample, limits=self._actuator.limits, since_raise_ms=self._actuator.since_raise_ms(now_ns)
        )
        return decide(current, taken.facts, taken.pods, self._policy)

    def _chosen(self, command: NodeCommand, taken: Taken, own: Decision) -> Act:
        """The answer if it may act, else the agent's own result with the reason."""
        if command.answer == "skipped":
            return self._own_act(own, taken, f"skipped: {command.reason}")
        if command.policy_version != self._policy.version:
            return self._own_act(own, taken, "other policy")
        hold = _hold_of(command, taken)
        if hold is None or own.limits is None or not _holdable(hold.limits, taken) or looser(hold.limits, own.limits):
            return self._own_act(own, taken, "disagrees")
        return Act(
            limits=hold.limits,
            # Not the one that it claims: two answers under one id would be one act with two outcomes.
            id=self._id(taken, RULE) if command.answer == "set" else self._id(taken, "answer", self.node),
            rule=hold.rule,
            origin="stream",
            reason="",
            bound=hold.bound,
            terms=hold.terms,
        )

    def _own_act(self, own: Decision, taken: Taken, reason: str) -> Act:
        return Act(
            limits=own.limits,
            id=self._id(taken, RULE),
            rule=RULE,
            origin="guard",
            reason=reason if own.reason in reason else f"{reason}; {own.reason}",
            bound=own.bound,
            terms=own.terms,
        )

    def _guard(self, reason: str) -> None:
        """Decide on the newest sample without the stream."""
        newest = self._protocol.newest
        if newest is None or self._protocol.settled(newest.sample.seq):
            return
        self._settle(self._own_act(self._own(newest, self._clock.mono_ns()), newest, reason), newest)

    def _settle(self, act: Act, taken: Taken) -> None:
        self._protocol.settle(taken.sample.seq, by_guard=act.origin == "guard")
        self._perform(act, taken)

    def _perform(self, act: Act, taken: Taken) -> None:
        outcome = NodeOutcome(
            node=self.node,
            boot_id=self.boot_id,
            seq=taken.sample.seq,
            command_id=act.id,
            rule=act.rule,
            target=TARGET,
            origin=act.origin,
            result="unchanged",
            reason=act.reason,
            policy_version=self._policy.version,
            observed_ms=taken.sample.observed_ms,
            acted_ms=0,
            age_ms=0,
            bound=act.bound,
            terms=act.terms,
        )
        self._actuator.perform(act, outcome, dated=lambda report: self._dated(report, taken))

    def _dated(self, outcome: NodeOutcome, taken: Taken) -> NodeOutcome:
        now_ns = self._clock.mono_ns()
        return msgspec.structs.replace(
            outcome, acted_ms=self._sampler.event_time.of(now_ns), age_ms=(now_ns - taken.taken_ns) // 1_000_000
        )

    def _refused(self, command: NodeCommand, cause: str) -> NodeOutcome:
        return NodeOutcome(
            node=self.node,
            boot_id=self.boot_id,
            seq=command.seq,
            command_id=command.hold[0].id if command.hold else command.id,
            rule=RULE,
            target=TARGET,
            origin="stream",
            result="refused",
            reason=cause,
            policy_version=command.policy_version,
            observed_ms=command.observed_ms,
            acted_ms=self._sampler.event_time.of(self._clock.mono_ns()),
            age_ms=0,
        )

    def _id(self, taken: Taken, rule: str, target: str = TARGET) -> str:
        return command_id(self.node, self.boot_id, taken.sample.seq, rule, target, self._policy.version)


def _hold_of(command: NodeCommand, taken: Taken) -> Hold | None:
    """What the answer wants held for best-effort pods; nothing else is ever touched."""
    if command.answer == "keep":
        limits = taken.sample.limits
        return None if limits is None else Hold(id=command.id, rule=RULE, target=TARGET, limits=limits, bound="kept")
    return next((hold for hold in command.hold if (hold.rule, hold.target) == (RULE, TARGET)), None)


def _holdable(limits: Limits, taken: Taken) -> bool:
    """Whether this node's kernel can hold it; an answer that it cannot is no answer."""
    if limits.be_cpuset is not None:
        held = taken.sample.limits and taken.sample.limits.be_cpuset
        known = {one.cpu for one in taken.facts.processors} | set(held or ())
        if not limits.be_cpuset or not known.issuperset(limits.be_cpuset):
            return False
    quota_us, period_us = limits.be_cfs_quota_us, limits.be_cfs_period_us
    return PERIOD_US_MIN <= period_us <= PERIOD_US_MAX and (quota_us is None or quota_us >= QUOTA_US_MIN)
