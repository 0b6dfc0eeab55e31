"""The checks can fail: each real part, broken in one way, is found out. Otherwise a silent run would say nothing."""

from __future__ import annotations

from functools import partial

import msgspec

from sim import check_budget
from sim.world import Parts
from slacktide.agents.credit_account import CreditAccount
from slacktide.agents.node import verdict
from slacktide.agents.node.actuator import Actuator
from slacktide.agents.node.agent import NodeAgent
from slacktide.agents.node.evict.restraint import Dying
from slacktide.agents.node.evict.victims import Victims
from slacktide.agents.node.protocol import Protocol
from slacktide.agents.node.reporter import Refusals
from slacktide.agents.node.spool import MemorySpool
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.sample import Limits
from slacktide.schemas.topics import ALLOCATABLE, COMMAND
from slacktide.streams.decisions.evict import node_evict
from slacktide.streams.decisions.evict.evict_candidates import EvictPod
from slacktide.streams.worker import Worker
from testbed.virtual.best_effort import VirtualBestEffort
from testbed.virtual.kernel import VirtualKernel


def test_an_agent_that_ignores_boot_ids(monkeypatch, complaint):
    judge = Protocol.judge

    def blind(self, command, now_ns):
        return judge(self, msgspec.structs.replace(command, boot_id=self._boot_id), now_ns)

    monkeypatch.setattr(Protocol, "judge", blind)

    assert "decided by an answer to something else" in complaint()


def test_an_agent_that_takes_other_nodes_answers_for_its_own(monkeypatch, complaint):
    judge = Protocol.judge

    def blind(self, command, now_ns):
        return judge(self, msgspec.structs.replace(command, node=self._node), now_ns)

    monkeypatch.setattr(Protocol, "judge", blind)

    assert "decided by an answer to something else" in complaint()


def test_an_agent_that_applies_looser_answers(monkeypatch, complaint):
    monkeypatch.setattr(verdict, "looser", lambda one, other: False)

    first = complaint()

    assert "gives more than its own decision" in first or "over its allowance" in first


def test_an_agent_that_ignores_the_policy_version(complaint):
    class Trusting(NodeAgent):
        def _answer(self, command, taken, now_ns):
            super()._answer(msgspec.structs.replace(command, policy_version=self._policy.version), taken, now_ns)

    assert "decided by an answer to something else" in complaint(partial(Parts, agent=Trusting))


def test_an_agent_that_decides_a_sample_twice(monkeypatch, complaint):
    judge = Protocol.judge

    def forgetful(self, command, now_ns):
        if not self._settled_by_guard:
            self._settled_seq = -1
        return judge(self, command, now_ns)

    monkeypatch.setattr(Protocol, "judge", forgetful)

    said = complaint()
    twice = ("acts out of order", "decided twice", "means to act twice", "acted, but says unchanged")
    assert any(words in said for words in twice)


def test_a_guard_that_does_nothing(complaint):
    class Idle(NodeAgent):
        def _guard(self, reason):
            newest = self._protocol.newest
            if newest is not None and not self._protocol.settled(newest.sample.seq):
                self._protocol.settle(newest.sample.seq, by_guard=True)

    assert "over its allowance" in complaint(partial(Parts, agent=Idle))


def test_a_guard_without_a_deadline(monkeypatch, complaint):
    monkeypatch.setattr(Protocol, "overdue", lambda self, now_ns: False)

    said = complaint()
    assert "over its allowance" in said or "decided by a late answer" in said


def test_a_guard_whose_deadline_begins_anew_with_each_sample(monkeypatch, complaint):
    """With a sample a second and a deadline of one, it would never come."""

    def from_the_newest(self):
        newest = self.newest
        waits = self.in_charge == "stream" and newest is not None and newest.sample.seq > self._answered_seq
        return newest.taken_ns + self._deadline_ns if waits else None

    monkeypatch.setattr(Protocol, "deadline_ns", from_the_newest)

    said = complaint()
    assert "over its allowance" in said or "decided by a late answer" in said


def test_a_guard_that_never_hands_back(monkeypatch, complaint):
    monkeypatch.setattr(Protocol, "_count_answer", lambda self, taken, now_ns: None)

    said = complaint()
    assert "the stream is not in charge" in said or "not the stream decides" in said


def test_a_guard_that_hands_back_after_one_answer(monkeypatch, complaint):
    monkeypatch.setattr("slacktide.agents.node.protocol.IN_TIME_TO_HAND_BACK", 1)

    assert "the guard hands back too early" in complaint()


def test_raises_that_are_not_spaced(monkeypatch, complaint):
    """The sample, which says how long ago the last one was, is caught in the lie; or the guard's act before it."""
    monkeypatch.setattr(Actuator, "since_raise_ms", lambda self, now_ns: None)

    said = complaint()
    assert "does not say what the kernel shows" in said or "gives more than its own decision" in said


def test_an_act_before_its_intent(complaint):
    class Hasty(NodeAgent):
        def __init__(self, **parts):
            parts["spool"].intend = lambda outcome: None
            super().__init__(**parts)

    assert "an act without an intent" in complaint(partial(Parts, agent=Hasty))


def test_a_spool_that_forgets_what_was_interrupted(complaint):
    class Forgetful(MemorySpool):
        def interrupted(self):
            return []

    said = complaint(partial(Parts, make_spool=Forgetful))
    assert "an act without an outcome" in said or "others are dying than it says" in said


def test_a_spool_that_forgets_an_outcome(complaint):
    class Forgetful(MemorySpool):
        def conclude(self, outcome):
            super().conclude(outcome)
            if self._position % 50 == 0:
                self._pending.pop()

    assert "outcomes that never reached the log" in complaint(partial(Parts, make_spool=Forgetful))


def test_a_spool_that_is_never_emptied(complaint):
    class Hoarder(MemorySpool):
        def acknowledge(self, position):
            pass

    assert "outcomes left in the spool" in complaint(partial(Parts, make_spool=Hoarder))


def test_an_outcome_that_says_applied_where_the_kernel_refused(monkeypatch, complaint):
    conclude = Actuator.conclude

    def lying(self, outcome):
        conclude(self, msgspec.structs.replace(outcome, result="applied") if outcome.result == "failed" else outcome)

    monkeypatch.setattr(Actuator, "conclude", lying)

    assert "never applied" in complaint()


def test_an_agent_that_believes_its_own_writes(monkeypatch, complaint):
    """What it does not read back it cannot know."""

    def credulous(self, limits):
        self._believed = limits
        return ""

    monkeypatch.setattr(Actuator, "_write", credulous)
    monkeypatch.setattr(Actuator, "_read_back", lambda self: getattr(self, "_believed", None))

    assert "never applied" in complaint()


def test_refusals_that_nobody_counts(monkeypatch, complaint):
    monkeypatch.setattr(Refusals, "add", lambda self, outcome, now_ns: None)

    assert "refused answers, and how many the outcomes say" in complaint()


def test_a_kernel_door_that_touches_more_than_best_effort(monkeypatch, complaint):
    hold = VirtualKernel.hold

    def greedy(self, limits: Limits):
        self.machine.groups["kubepods/burstable"].quota_us = 500_000
        hold(self, limits)

    monkeypatch.setattr(VirtualKernel, "hold", greedy)

    assert "touches more than best-effort" in complaint()


def test_an_agent_that_says_its_pods_but_once(monkeypatch, complaint):
    """Whoever reads on from later would never learn them."""
    monkeypatch.setattr("slacktide.agents.node.sampler.Sampler._keyframe_due", lambda self, now_ns: self._seq == 1)

    assert "a keyframe is overdue" in complaint()


def test_a_rule_that_knows_no_cool_down(monkeypatch, complaint):
    monkeypatch.setattr(node_evict, "MEMORY_COOL_MS", 0)

    assert "evicts again too soon" in complaint()


def test_an_agent_that_evicts_on_credit_that_it_has_not(monkeypatch, complaint):
    monkeypatch.setattr(CreditAccount, "ready", lambda self, now_ns, namespace: True)

    said = complaint()
    assert "evicts without credit" in said or "evicts on a lease that is over" in said


def test_an_agent_that_forgets_whom_it_has_evicted(monkeypatch, complaint):
    """It says so with each sample: nobody but the node knows it."""
    monkeypatch.setattr(Victims, "dying", [])

    assert "others are dying than it says" in complaint()


def test_a_rule_that_does_not_count_who_is_dying(monkeypatch, complaint):
    named = node_evict.evictions

    def forgetful(sample, facts, pods, policy):
        state = msgspec.structs.replace(sample.evict, dying=[], since_mem_ms=None)
        return named(msgspec.structs.replace(sample, evict=state), facts, pods, policy)

    monkeypatch.setattr("slacktide.streams.decisions.node_decision.evictions", forgetful)

    said = complaint()
    assert "evicts although enough is dying" in said or "evicts again too soon" in said


def test_a_rule_and_a_door_that_let_any_pod_go(monkeypatch, complaint):
    """One of the two would be enough to spare them."""

    def anybody(self, pod, use, measure, dying):
        return EvictPod(pod=pod, used=getattr(use, measure), already_evicted=pod.uid in dying)

    monkeypatch.setattr("slacktide.streams.decisions.evict.node_evict._Node._evictable", anybody)
    monkeypatch.setattr(VirtualBestEffort, "_pod", lambda self, uid: self._machine.pods.get(uid))

    assert "touches a pod that is not best-effort" in complaint()


def test_an_agent_without_patience(monkeypatch, complaint):
    monkeypatch.setattr(Dying, "due", lambda self, processes, now_ns: "kill" if processes else "over")

    assert "kills before the grace is over" in complaint()


def test_an_agent_that_lets_nobody_go_on(monkeypatch, complaint):
    monkeypatch.setattr(VirtualBestEffort, "thaw", lambda self, uid: None)

    assert "frozen and forgotten" in complaint()


class Changed(Worker):
    """A worker whose commands are changed before they leave it."""

    def change(self, command: NodeCommand) -> NodeCommand:
        return command

    def samples(self, records, now_ms):
        return [
            msgspec.structs.replace(out, value=encode(self.change(decode(out.value, NodeCommand))))
            if out.topic == COMMAND.name
            else out
            for out in super().samples(records, now_ms)
        ]


def test_a_worker_that_leaves_a_sample_unanswered(complaint):
    class Lazy(Worker):
        def samples(self, records, now_ms):
            return super().samples(list(records)[:1], now_ms)

    assert "not answered, or unasked" in complaint(partial(Parts, worker=Lazy))


def test_a_worker_that_skips_what_it_could_decide(complaint):
    class Shy(Changed):
        def change(self, command):
            return msgspec.structs.replace(command, answer="skipped", reason="no pods", hold=[])

    assert "skipped for an untrue reason" in complaint(partial(Parts, worker=Shy))


def test_a_worker_that_decides_otherwise(complaint):
    class Generous(Changed):
        def change(self, command):
            return msgspec.structs.replace(command, answer="keep", hold=[])

    assert "decided otherwise than" in complaint(partial(Parts, worker=Generous))


def test_a_worker_that_spares_who_should_go(complaint):
    class Merciful(Changed):
        def change(self, command):
            return msgspec.structs.replace(command, evict=command.evict[1:])

    assert "evicts others than" in complaint(partial(Parts, worker=Merciful))


def test_a_worker_that_decides_by_its_own_policy_whatever_the_sample_says(monkeypatch, complaint):
    monkeypatch.setattr("slacktide.streams.worker.answering.OTHER_POLICY", "the weather")

    assert "decided by another policy" in complaint()


def test_a_worker_that_drops_what_it_cannot_read(complaint):
    class Careless(Worker):
        def samples(self, records, now_ms):
            return [out for out in super().samples(records, now_ms) if out.topic == COMMAND.name]

    assert "other dead letters than bad records" in complaint(partial(Parts, worker=Careless))


def test_a_worker_that_sells_less_than_was_sold_already(complaint):
    class Short(Worker):
        def samples(self, records, now_ms):
            return [
                self._short(out) if out.topic == ALLOCATABLE.name else out for out in super().samples(records, now_ms)
            ]

        def _short(self, out):
            return msgspec.structs.replace(
                out, value=encode(msgspec.structs.replace(decode(out.value, NodeAllocatable), batch_mem_bytes=0))
            )

    assert "sells less than was sold already" in complaint(partial(Parts, worker=Short))


def test_a_budget_that_is_smaller_than_what_the_governor_grants(monkeypatch, complaint):
    monkeypatch.setitem(check_budget.BUDGET, "nodeMax", 0)

    assert "more evictions than a node's budget" in complaint()
