"""The checks can fail: each real part, broken in one way, is found out. Otherwise a silent run would say nothing."""

from functools import partial

import msgspec
import pytest

from sim import check_evictions
from sim.world import Parts
from slacktide.agents.credit_account import CreditAccount
from slacktide.agents.node import protocol
from slacktide.agents.node.agent import NodeAgent
from slacktide.agents.node.evict.victims import Dying, Victims
from slacktide.agents.node.protocol import Protocol
from slacktide.agents.node.reporter import Actuator, Refusals
from slacktide.agents.node.spool import MemorySpool
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.topics import ALLOCATABLE, COMMAND
from slacktide.streams.decisions.evict import node_evict
from slacktide.streams.decisions.evict.evict_tasks import EvictPod
from slacktide.streams.worker import Worker
from testbed.virtual.best_effort import VirtualBestEffort
from testbed.virtual.kernel import VirtualKernel

SOMETHING_ELSE = "decided by an answer to something else"
OVER = "over its allowance"
LATE = "decided by a late answer"
_judge, _conclude, _hold, _evictions = Protocol.judge, Actuator.conclude, VirtualKernel.hold, node_evict.evictions
_replace = msgspec.structs.replace


def _forgets_what_it_settled(self, command, now_ns):
    if not self._settled_by_guard:
        self._settled_seq = -1
    return _judge(self, command, now_ns)


def _deadline_from_the_newest_sample(self):
    """With a sample a second and a deadline of one, it would never come."""
    newest = self.newest
    waits = self.in_charge == "stream" and newest is not None and newest.sample.seq > self._answered_seq
    return newest.taken_ns + self._deadline_ns if waits else None


def _says_applied(self, outcome):
    _conclude(self, _replace(outcome, result="applied") if outcome.result == "failed" else outcome)


def _believes(self, limits):
    """What it does not read back it cannot know."""
    self._believed = limits
    return ""


def _greedy(self, limits):
    self.machine.groups["kubepods/burstable"].quota_us = 500_000
    _hold(self, limits)


def _counts_nobody_dying(sample, facts, pods, policy):
    return _evictions(_replace(sample, evict=_replace(sample.evict, dying=[], since_mem_ms=None)), facts, pods, policy)


def _anybody(self, pod, use, measure, dying):
    return EvictPod(pod=pod, used=getattr(use, measure), already_evicted=pod.uid in dying)


NODE = "slacktide.agents.node"
EVICT = "slacktide.streams.decisions"
PATCHED = {
    "an agent that ignores boot ids": (
        {(Protocol, "judge"): lambda self, one, now_ns: _judge(self, _replace(one, boot_id=self._boot_id), now_ns)},
        SOMETHING_ELSE,
    ),
    "an agent that takes other nodes' answers for its own": (
        {(Protocol, "judge"): lambda self, one, now_ns: _judge(self, _replace(one, node=self._node), now_ns)},
        SOMETHING_ELSE,
    ),
    "an agent that applies looser answers": (
        {(protocol, "looser"): lambda one, other: False},
        "gives more than its own decision", OVER,
    ),
    "an agent that decides a sample twice": (
        {(Protocol, "judge"): _forgets_what_it_settled},
        "acts out of order", "decided twice", "means to act twice", "acted, but says unchanged",
    ),
    "a guard without a deadline": ({(Protocol, "overdue"): lambda self, now_ns: False}, OVER, LATE),
    "a guard whose deadline begins anew with each sample": (
        {(Protocol, "deadline_ns"): _deadline_from_the_newest_sample}, OVER, LATE,
    ),
    "a guard that never hands back": (
        {(Protocol, "_count_answer"): lambda self, taken, now_ns: None},
        "the stream is not in charge", "not the stream decides",
    ),
    "a guard that hands back after one answer": (
        {f"{NODE}.protocol.IN_TIME_TO_HAND_BACK": 1}, "the guard hands back too early",
    ),
    # The sample, which says how long ago the last one was, is caught in the lie; or the guard's act before it.
    "raises that are not spaced": (
        {(Actuator, "since_raise_ms"): lambda self, now_ns: None},
        "does not say what the kernel shows", "gives more than its own decision",
    ),
    "an outcome that says applied where the kernel refused": (
        {(Actuator, "conclude"): _says_applied}, "never applied", "an act on a pod without an intent",
    ),
    "an agent that believes its own writes": (
        {(Actuator, "_write"): _believes, (Actuator, "_read_back"): lambda self: getattr(self, "_believed", None)},
        "never applied",
    ),
    "refusals that nobody counts": (
        {(Refusals, "add"): lambda self, outcome, now_ns: None}, "refused answers, and how many the outcomes say",
    ),
    "a kernel door that touches more than best-effort": (
        {(VirtualKernel, "hold"): _greedy}, "touches more than best-effort",
    ),
    # Whoever reads on from later would never learn them.
    "an agent that says its pods but once": (
        {f"{NODE}.protocol.Sampler._keyframe_due": lambda self, now_ns: self._seq == 1}, "a keyframe is overdue",
    ),
    "a rule that knows no cool-down": ({(node_evict, "MEMORY_COOL_MS"): 0}, "evicts again too soon"),
    "an agent that evicts on credit that it has not": (
        {(CreditAccount, "ready"): lambda self, now_ns, namespace: True},
        "evicts without credit", "evicts on a lease that is over",
    ),
    # It says so with each sample: nobody but the node knows it.
    "an agent that forgets whom it has evicted": ({(Victims, "dying"): []}, "others are dying than it says"),
    "a rule that does not count who is dying": (
        {f"{EVICT}.node_decision.evictions": _counts_nobody_dying},
        "evicts although enough is dying", "evicts again too soon",
    ),
    # One of the two would be enough to spare them.
    "a rule and a door that let any pod go": (
        {f"{EVICT}.evict.node_evict._Pods._evictable": _anybody,
         (VirtualBestEffort, "_pod"): lambda self, uid: self._machine.pods.get(uid)},
        "touches a pod that is not best-effort",
    ),
    "an agent without patience": (
        {(Dying, "due"): lambda self, processes, now_ns: "kill" if processes else "over"},
        "kills before the grace is over",
    ),
    "an agent that lets nobody go on": ({(VirtualBestEffort, "thaw"): lambda self, uid: None}, "frozen and forgotten"),
    "a worker that decides by its own policy whatever the sample says": (
        {"slacktide.streams.worker.one_by_one.OTHER_POLICY": "the weather"}, "decided by another policy",
    ),
}  # fmt: skip


COMPLAINED = {
    "an agent that ignores boot ids": 8,
    "an agent that takes other nodes' answers for its own": 8,
    "an agent that applies looser answers": 8,
    "an agent that decides a sample twice": 3,
    "a guard that hands back after one answer": 40,
    "an outcome that says applied where the kernel refused": 4,
    "a rule that knows no cool-down": 26,
    "an agent that forgets whom it has evicted": 2,
    "a rule that does not count who is dying": 26,
    "an agent that ignores the policy version": 8,
    "a guard that does nothing": 1,
    "a spool that forgets what was interrupted": 17,
    "an agent that lets nobody go on": 14,
    "a worker that decides by its own policy whatever the sample says": 60,
    "a rule and a door that let any pod go": 3,
    "an agent without patience": 2,
    "a worker that drops what it cannot read": 3,
    "a spool that forgets an outcome": 1,
    "a spool that is never emptied": 1,
}
"""Worlds that complained when last looked for: they come first, which saves minutes and proves nothing."""


@pytest.mark.parametrize("broken", PATCHED)
def test_a_broken_part_is_found_out(broken, monkeypatch, complaint):
    changes, *words = PATCHED[broken]
    for where, what in changes.items():
        monkeypatch.setattr(*([where] if isinstance(where, str) else where), what)

    said = complaint(first=COMPLAINED.get(broken, 0))
    assert any(one in said for one in words), said


class Trusting(NodeAgent):
    def _answer(self, command, taken, now_ns):
        super()._answer(_replace(command, policy_version=self._policy.version), taken, now_ns)


class Idle(NodeAgent):
    def _guard(self, reason):
        newest = self._protocol.newest
        if newest is not None and not self._protocol.settled(newest.sample.seq):
            self._protocol.settle(newest.sample.seq, by_guard=True)


class Hasty(NodeAgent):
    def __init__(self, **parts):
        parts["spool"].intend = lambda outcome: None
        super().__init__(**parts)


class ForgetsInterrupted(MemorySpool):
    def interrupted(self):
        return []


class ForgetsOutcome(MemorySpool):
    def conclude(self, outcome):
        super().conclude(outcome)
        if self._position % 50 == 0:
            self._pending.pop()


class Hoarder(MemorySpool):
    def acknowledge(self, position):
        pass


class Changed(Worker):
    """A worker one kind of whose messages is changed before it leaves it."""

    topic, kind = COMMAND.name, NodeCommand

    def samples(self, records, now_ms):
        return [
            _replace(out, value=encode(self.change(decode(out.value, self.kind)))) if out.topic == self.topic else out
            for out in super().samples(records, now_ms)
        ]


class Lazy(Worker):
    def samples(self, records, now_ms):
        return super().samples(list(records)[:1], now_ms)


class Shy(Changed):
    def change(self, command):
        return _replace(command, answer="skipped", reason="no pods", hold=[])


class Generous(Changed):
    def change(self, command):
        return _replace(command, answer="keep", hold=[])


class Merciful(Changed):
    def change(self, command):
        return _replace(command, evict=command.evict[1:])


class Careless(Worker):
    def samples(self, records, now_ms):
        return [out for out in super().samples(records, now_ms) if out.topic == COMMAND.name]


class Short(Changed):
    topic, kind = ALLOCATABLE.name, NodeAllocatable

    def change(self, figures):
        return _replace(figures, batch_mem_bytes=0)


REPLACED = {
    "an agent that ignores the policy version": ({"agent": Trusting}, SOMETHING_ELSE),
    "a guard that does nothing": ({"agent": Idle}, OVER),
    "an act before its intent": ({"agent": Hasty}, "an act without an intent"),
    "a spool that forgets what was interrupted": (
        {"make_spool": ForgetsInterrupted}, "an act without an outcome", "others are dying than it says",
    ),
    "a spool that forgets an outcome": ({"make_spool": ForgetsOutcome}, "outcomes that never reached the log"),
    "a spool that is never emptied": ({"make_spool": Hoarder}, "outcomes left in the spool"),
    "a worker that leaves a sample unanswered": ({"worker": Lazy}, "not answered, or unasked"),
    "a worker that skips what it could decide": ({"worker": Shy}, "skipped for an untrue reason"),
    "a worker that decides otherwise": ({"worker": Generous}, "decided otherwise than"),
    "a worker that spares who should go": ({"worker": Merciful}, "evicts others than"),
    "a worker that drops what it cannot read": ({"worker": Careless}, "other dead letters than bad records"),
    "a worker that sells less than was sold already": ({"worker": Short}, "sells less than was sold already"),
}  # fmt: skip


@pytest.mark.parametrize("broken", REPLACED)
def test_a_broken_part_in_place_of_a_real_one_is_found_out(broken, complaint):
    part, *words = REPLACED[broken]
    said = complaint(partial(Parts, **part), first=COMPLAINED.get(broken, 0))
    assert any(one in said for one in words), said


def test_a_budget_that_is_smaller_than_what_the_governor_grants(monkeypatch, complaint):
    monkeypatch.setitem(check_evictions.BUDGET, "nodeMax", 0)

    assert "more evictions than a node's budget" in complaint()
