"""All checks of one world behind one face, so that the parts tell what they do and know no check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.check_answers import AnswerChecks
from sim.check_evictions import BudgetChecks, EvictionChecks
from sim.check_limits import LimitChecks
from sim.check_outcomes import OutcomeChecks
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.inventory import NodeFacts, Pod, revision_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.streams.decisions.cpu_list import cpu_ranges
from slacktide.streams.records import Out, Record
from testbed.virtual.kernel import VirtualKernel

if TYPE_CHECKING:
    from sim.node import Node
    from sim.world import World


class Checker:
    """Hears of everything, writes it into the trace, and stops the run at the first wrong."""

    def __init__(self, world: World) -> None:
        self.pods: dict[str, list[Pod]] = {}
        """Every pod list that a node was ever told, by revision."""
        self.facts: dict[str, NodeFacts] = {}
        self._world = world
        self._trace = world.trace
        self._limits: dict[str, LimitChecks] = {}
        self._outcomes: dict[str, OutcomeChecks] = {}
        self._evictions: dict[str, EvictionChecks] = {}
        self._budget = BudgetChecks(world)
        self._answers = AnswerChecks(world)
        self.worker_started = self._answers.worker_started
        self.worker_told = self._answers.worker_told
        self.learns = self._answers.learns
        self.forgets = self._answers.forgets
        self.sent = self._answers.sent

    def watch(self, node: Node) -> None:
        self._limits[node.name] = LimitChecks(node, self._world.interval_ms)
        self._outcomes[node.name] = OutcomeChecks(node)
        self._evictions[node.name] = EvictionChecks(node, self._budget)
        self._remember(node)

    def booted(self, node: Node, boot_id: str) -> None:
        self._limits[node.name].booted(boot_id)
        self._outcomes[node.name].booted(boot_id)
        self._evictions[node.name].booted(boot_id)

    def stopped(self, node: Node, *, kill: bool) -> None:
        self._limits[node.name].stopped()
        self._outcomes[node.name].stopped(kill=kill)

    def told(self, node: Node) -> None:
        self._trace.note(node.name, "is told", f"policy {node.policy.version},", f"{len(node.pods)} pods")
        self._remember(node)
        self._limits[node.name].told()

    def taking(self, node: Node) -> None:
        self._limits[node.name].taking()

    def acts(self, node: Node) -> None:
        self._limits[node.name].acts(self._outcomes[node.name].intent)

    def took(self, node: Node, sample: NodeSample) -> None:
        assert node.agent is not None
        self._trace.note(
            node.name, "sample", sample.seq, f"uses {sample.use.cpu_milli}m", _quota(sample.limits),
            "keyframe" if sample.pods is not None else "", node.agent.in_charge,
        )  # fmt: skip
        self._limits[node.name].took(sample)
        self._evictions[node.name].says(sample)
        self._outcomes[node.name].took(sample.seq)

    def hears(self, node: Node, command: NodeCommand) -> None:
        holds = [_quota(hold.limits) for hold in command.hold]
        mine = "" if node.agent and command.boot_id == node.agent.boot_id else f"of boot {command.boot_id}"
        self._trace.note(node.name, "hears", command.seq, command.answer, *holds, command.reason, command.worker, mine)
        self._outcomes[node.name].hears(command)

    def heard(self, node: Node) -> None:
        self._outcomes[node.name].heard()

    def intended(self, node: Node, outcome: NodeOutcome) -> None:
        self._outcomes[node.name].intended(outcome)
        self._evictions[node.name].intended(outcome)

    def hears_credit(self, node: Node, credit: EvictionCredit, since_ms: int) -> None:
        self._trace.note(node.name, "hears credit", f"{credit.epoch}/{credit.number}", credit.granted)
        self._evictions[node.name].hears(credit, since_ms)

    def terminates(self, node: Node, uid: str) -> None:
        self._trace.note(node.name, "evicts", uid)
        self._limits[node.name].acts(self._evictions[node.name].meant(uid))
        self._evictions[node.name].terminates(uid, self._limits[node.name].samples)

    def kills(self, node: Node, uid: str) -> None:
        self._trace.note(node.name, "kills", uid)
        self._evictions[node.name].kills(uid)

    def freezes(self, node: Node, uid: str) -> None:
        self._trace.note(node.name, "freezes", uid)
        self._evictions[node.name].freezes(uid)

    def held(self, node: Node, before: Limits, limits: Limits, *, refused: bool) -> None:
        outcomes, checks = self._outcomes[node.name], self._limits[node.name]
        self._trace.note(node.name, "holds", _quota(before), "->", _quota(limits), "REFUSED" if refused else "")
        outcomes.held(refused=refused)
        checks.held(before, limits, outcomes.intent, refused=refused)

    def concluded(self, node: Node, outcome: NodeOutcome) -> None:
        self._trace.note(
            node.name, outcome.result, f"sample {outcome.seq} by {outcome.origin}", f"x{outcome.count}",
            _quota(outcome.after), outcome.bound, outcome.reason,
        )  # fmt: skip
        self._limits[node.name].decided(outcome)
        self._outcomes[node.name].concluded(outcome, VirtualKernel(node.machine).limits())
        self._evictions[node.name].ended(outcome)

    def answered(self, worker: str, entries: Sequence[Record], outs: Sequence[Out]) -> None:
        first, last = entries[0], entries[-1]
        self._trace.note(worker, "answers", f"{first.partition}@{first.offset}..{last.offset}", f"{len(outs)} records")
        self._answers.answered(worker, entries, outs)

    def settled(self) -> None:
        for outcomes in self._outcomes.values():
            outcomes.settled()

    def finished(self) -> None:
        for node in self._world.nodes:
            self._limits[node.name].judge()
            if node.agent is None or node.agent.in_charge != "stream":
                self._trace.complain(f"{node.name}: all is well, but the stream is not in charge")
            self._outcomes[node.name].finished()
            self._evictions[node.name].finished()
        self._answers.finished()

    @property
    def evicted(self) -> int:
        return sum(checks.evicted for checks in self._evictions.values())

    @property
    def frozen(self) -> int:
        return sum(checks.frozen for checks in self._evictions.values())

    @property
    def over_ms_longest(self) -> int:
        return max(checks.over_ms_longest for checks in self._limits.values())

    def _remember(self, node: Node) -> None:
        self.pods[revision_of(node.pods)] = node.pods
        self.facts[revision_of(node.facts)] = node.facts
        self._evictions[node.name].told(node.pods)


def _quota(limits: Limits | None) -> str:
    if limits is None:
        return "?"
    cpus = "" if limits.be_cpuset is None else f" on {cpu_ranges(limits.be_cpuset)}"
    return ("unlimited" if limits.be_cfs_quota_us is None else f"{limits.be_cfs_quota_us}us") + cpus
