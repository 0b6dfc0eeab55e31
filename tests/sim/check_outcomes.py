"""Every act has one outcome in the log and every outcome one act; neither spool nor outcome lies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.trace import Checks
from slacktide.agents.node.reporter import Key, key_of
from slacktide.schemas.codec import encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits
from slacktide.schemas.topics import OUTCOME
from slacktide.streams.decisions.suppress.cpu_suppress import RULE

if TYPE_CHECKING:
    from sim.node import Node

LATE = "no answer within"
IN_TIME_TO_HAND_BACK = 2
ACTED = frozenset({"applied", "failed"})


@dataclass(slots=True)
class Act:
    intent: NodeOutcome
    done: bool = False
    refused: bool = False
    outcome: NodeOutcome | None = None


class OutcomeChecks(Checks):
    """Judges one node's outcomes by its acts."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.world, node.name)
        self._node = node
        self._acts: dict[Key, Act] = {}
        self._open: Act | None = None
        self._concluded: list[NodeOutcome] = []
        self._quiet_from = 0
        self._decided: Counter[str] = Counter()
        self._taken_ms: dict[int, int] = {}
        self.booted("")

    @property
    def intent(self) -> NodeOutcome | None:
        return None if self._open is None else self._open.intent

    def booted(self, boot_id: str) -> None:
        """A new agent: what the last one left open stays open until this one says what came of it."""
        self._boot_id = boot_id
        self._hearing = self._open = None
        self._heard = self._settled = 0
        self._taken_ms.clear()
        self._answered_seq = -1
        self._in_time = 0
        """Successive samples answered in time, since the guard took charge."""
        self._guarding = False

    def stopped(self, *, kill: bool) -> None:
        """Refusals held back are lost by a kill, and only by that."""
        if not kill:
            self._count_refusals()

    def took(self, seq: int) -> None:
        self._taken_ms[seq] = self._now_ms

    def hears(self, command: NodeCommand) -> None:
        """An answer is being handed to the agent: in time, or not."""
        self._hearing = command
        self._heard += 1
        seq = command.seq
        mine = (command.node, command.boot_id) == (self._node.name, self._boot_id)
        if not mine or seq not in self._taken_ms or seq <= self._answered_seq:
            return
        age_ms = self._now_ms - self._taken_ms[seq]
        follows = seq == self._answered_seq + 1
        self._answered_seq = seq
        if age_ms > self._node.settings.guard_deadline_ms:
            self._in_time = 0
        else:
            self._in_time = self._in_time + 1 if follows else 1
            self._guarding = self._guarding and self._in_time < IN_TIME_TO_HAND_BACK

    def heard(self) -> None:
        self._hearing = None

    def intended(self, outcome: NodeOutcome) -> None:
        self._must(key_of(outcome) not in self._acts, "means to act twice on one id", outcome)
        if outcome.origin == "stream" and (outcome.rule == RULE or outcome.spent is not None):
            self._answers(outcome)
        act = self._acts[key_of(outcome)] = Act(outcome)
        if outcome.pod is None:
            self._open = act

    def held(self, *, refused: bool) -> None:
        if self._open is not None:
            self._open.done, self._open.refused = not refused, refused

    def concluded(self, outcome: NodeOutcome, limits: Limits) -> None:
        """The spool has an outcome: it says what the kernel holds now, and what it held before."""
        self._concluded.append(outcome)
        if outcome.reason.startswith(LATE) and not self._guarding:
            self._guarding, self._in_time = True, 0
        act = self._acts.get(key_of(outcome))
        if outcome.pod is not None:
            # An eviction is two acts: it is asked to go, it is gone. What did not come to be has no intent.
            if act is not None:
                self._must(act.outcome is None, "a pod's act has two outcomes", outcome)
                act.outcome = outcome
            else:
                self._must(outcome.result in {"refused", "failed", "unchanged"} or outcome.bound == "frozen",
                           "an act on a pod without an intent", outcome)  # fmt: skip
        elif outcome.result in ACTED:
            self._must(act is not None and act.outcome is None, "an outcome without an act, or its second", outcome)
            self._true(act, outcome, limits)
            act.outcome = outcome
            self._open = None
        elif outcome.result == "unchanged":
            self._must(act is None, "acted, but says unchanged", outcome)
            if outcome.origin == "stream" and outcome.rule == RULE:
                self._answers(outcome)
            self._must(outcome.before == outcome.after, "unchanged, but differs", outcome)
            hidden = self._node.kernel.hides or outcome.after is None
            self._must(hidden or outcome.after == limits, "the kernel holds something else", limits, outcome)
        else:
            self._must(outcome.result == "refused", "nobody asked for this", outcome)
        if outcome.rule == RULE and outcome.result != "refused":
            self._settled += self._hearing is not None and not outcome.reason.startswith(LATE)
            self._decided[outcome.command_id] += 1
            self._must(self._decided[outcome.command_id] == 1, "decided twice", outcome)

    def finished(self) -> None:
        """After the quiet time: log, acts and outcomes are the same, and nothing waits."""
        self._count_refusals()
        for act in self._acts.values():
            self._must(act.outcome is not None, "an act without an outcome", act.intent)
        spool = self._node.spool
        self._must(not spool.interrupted(), "intents left in the spool", spool.interrupted())
        self._must(not spool.pending(1), "outcomes left in the spool", spool.pending(3))
        log = self._node.world.log
        mine = [entry for entry in log.ever[OUTCOME.name] if entry.key == self._node.key]
        in_log = {entry.value for entry in mine}
        said = {encode(outcome) for outcome in self._concluded}
        self._must(len(said) == len(self._concluded), "two outcomes are one and the same")
        self._must(in_log >= said, "outcomes that never reached the log", sorted(said - in_log)[:3])
        self._must(in_log <= said, "outcomes in the log that nobody made", sorted(in_log - said)[:3])
        first_seen = list(dict.fromkeys(entry.value for entry in mine))
        order = [encode(outcome) for outcome in self._concluded]
        self._must(first_seen == order, "outcomes reached the log in another order than they were made")
        for outcome in self._concluded[self._quiet_from :]:
            well = outcome.origin == "stream" and outcome.result != "refused"
            self._must(well, "all is well, but not the stream decides", outcome)

    def settled(self) -> None:
        """From now on nothing but the stream may decide."""
        self._quiet_from = len(self._concluded)

    def _answers(self, outcome: NodeOutcome) -> None:
        """What the stream is said to have decided was said by an answer to this very sample of this very boot."""
        hearing = self._hearing
        self._must(hearing is not None, "decided by an answer that was never heard", outcome)
        said = (hearing.node, hearing.boot_id, hearing.seq, hearing.policy_version)
        meant = (self._node.name, self._boot_id, outcome.seq, self._node.policy.version)
        self._must(said == meant, "decided by an answer to something else", hearing, outcome)
        self._must(outcome.age_ms <= self._node.settings.guard_deadline_ms, "decided by a late answer", outcome)
        self._must(not self._guarding, "the guard hands back too early", outcome)

    def _true(self, act: Act, outcome: NodeOutcome, limits: Limits) -> None:
        """Whether a report agrees with what was seen at the kernel."""
        hidden = self._node.kernel.hides
        late = outcome.boot_id != self._boot_id
        self._must(outcome.before == act.intent.before, "another limit before than was meant", outcome)
        if outcome.result == "applied":
            self._must(act.done, "never applied", outcome)
            self._must(outcome.after == limits == act.intent.after, "the kernel holds something else", limits, outcome)
        else:
            self._must(not act.done or hidden, "it was applied", outcome)
            self._must(act.refused or hidden or late, "it did not fail", outcome)
            self._must(
                outcome.after == (None if hidden else limits), "the kernel holds something else", limits, outcome
            )

    def _count_refusals(self) -> None:
        """Each answer was either settled on or refused, and refusals are counted."""
        refused = sum(
            outcome.count
            for outcome in self._concluded
            if outcome.result == "refused" and outcome.rule == RULE and outcome.boot_id == self._boot_id
        )
        expected = self._heard - self._settled
        self._must(refused == expected, "refused answers, and how many the outcomes say", expected, refused)
