"""What must hold at each node's kernel: never over the allowance for long, in order, once, and best-effort alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import msgspec

from sim.trace import Checks
from slacktide.agents.clock import WALL_DRIFT_MS_MAX
from slacktide.agents.node.protocol import RATE_NS_MIN
from slacktide.agents.node.reporter import THROTTLED
from slacktide.deploy.virtual.machine import BEST_EFFORT
from slacktide.schemas.inventory import revision_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import KEYFRAME_MS, EvictState, Limits, NodeSample
from slacktide.streams.decisions.suppress.cpu_suppress import (
    RAISE_SPACING_MS,
    RULE,
    TARGET,
    Decision,
    decide,
    looser,
    quota_rate,
)
from slacktide.streams.decisions.suppress.cpu_suppress_quota import QUOTA_US_MIN
from testbed.virtual.kernel import VirtualKernel

if TYPE_CHECKING:
    from sim.node import Node

SLACK_MS = 60
"""Ticks and timers come late by some milliseconds here, as they do in a process."""
BYPASSED_PART = 0.01


@dataclass(slots=True)
class Cut:
    since_ms: int
    due_ms: int
    rate: float
    """CPUs."""


class LimitChecks(Checks):
    """Judges one node by its machine, and by what its agent was told; never by what the agent says."""

    def __init__(self, node: Node, interval_ms: int) -> None:
        super().__init__(node.world, node.name)
        self._node = node
        self._interval_ms = interval_ms
        self.over_ms_longest = 0
        self.applied_ids: set[str] = set()
        self.booted("")

    def booted(self, boot_id: str) -> None:
        """A new agent: it may repeat no id, but counts anew."""
        self.boot_id = boot_id
        self.samples: dict[int, NodeSample] = {}
        self._newest: NodeSample | None = None
        self._pods = list(self._node.pods)
        self._policy: Policy = self._node.policy
        self._mirror = VirtualKernel(self._node.machine)
        self._mirrored_ns: int | None = None
        self._hidden = False
        self._others: dict[str, tuple[object, ...]] = {}
        self._raised_ms: int | None = None
        self._cuts: list[Cut] = []
        self._last_seq = -1
        self._said = ("", "")
        self._keyframe_ms = -KEYFRAME_MS
        self._dates = (-1, 0)
        self._taking = False
        self._taken_seq = 0
        self._taken_ms = 0

    def stopped(self) -> None:
        self._cuts.clear()
        self._newest = None

    def told(self) -> None:
        """The agent has another policy now, and will look again at its next tick."""
        self._policy = self._node.policy
        self.judge()
        self._owe(self._now_ms, self._interval_ms)

    def taking(self) -> None:
        """The agent begins a sample; where the guard is in charge it acts before it is done."""
        self._taking = True

    def acts(self, intent: NodeOutcome | None) -> None:
        self._others = self._other_groups()
        self.decided(intent)

    def decided(self, outcome: NodeOutcome | None) -> None:
        """Something follows from the sample of this very tick: it has been taken."""
        seq = self._taken_seq + 1
        if self._taking and outcome is not None and outcome.seq == seq and seq not in self.samples:
            self._see(seq)

    def took(self, sample: NodeSample) -> None:
        """A sample says what the kernel shows, and carries pods and facts where they are due."""
        self._taking = False
        self._must(sample.boot_id == self.boot_id, "a sample of another boot")
        self._taken_seq = sample.seq
        if sample.seq not in self.samples:
            self._must(sample.seq > max(self.samples, default=-1), "a sample's seq does not rise")
            self._see(sample.seq)
        true = self.samples[sample.seq] = msgspec.structs.replace(
            self.samples[sample.seq], observed_ms=sample.observed_ms
        )
        bare = msgspec.structs.replace(sample, clock_epoch=0, pods=None, facts=None, evict=EvictState())
        self._must(self._hidden or bare == true, "a sample does not say what the kernel shows", bare, true)
        self._carries(sample)
        self._dated(sample)
        self._pods = list(self._node.pods)
        self._newest, self._taken_ms = true, self._now_ms
        self.judge()
        self._owe(self._now_ms, 0)

    def held(self, before: Limits, limits: Limits, intent: NodeOutcome | None, *, refused: bool) -> None:
        """An act on the kernel: meant, in order, once, allowed, spaced, and on best-effort pods alone."""
        self._must(intent is not None, "an act without an intent")
        self._must((intent.before, intent.after) == (before, limits), "the act is not what was meant", intent)
        self._must((intent.node, intent.boot_id) == (self._node.name, self.boot_id), "acts for another boot", intent)
        self._must(intent.seq in self.samples, "acts on a sample that was never taken", intent)
        self._must(intent.command_id not in self.applied_ids, "acts twice on", intent.command_id)
        self.applied_ids.add(intent.command_id)
        if intent.rule == RULE:
            last = self._last_seq
            self._must(intent.seq > last, "acts out of order: on this sample after that one", intent.seq, last)
            self._last_seq = intent.seq
            self._allowed(before, limits, intent)
            # A policy that suppresses nothing lifts the limit at once.
            if not refused and looser(limits, before) and intent.bound != "disabled":
                since_ms = None if self._raised_ms is None else self._now_ms - self._raised_ms
                self._must(
                    since_ms is None or since_ms >= RAISE_SPACING_MS,
                    "raises again too soon: milliseconds since the last",
                    since_ms,
                )
        # What cannot be read back may have been a raise: the agent counts it as one.
        if self._node.kernel.hides or (not refused and looser(limits, before)):
            self._raised_ms = self._now_ms
        self._must(intent.target == TARGET and self._others == self._other_groups(), "touches more than best-effort")
        self.judge()
        if not self._cuts:  # the guard acts on a sample that is still being taken
            self._owe(self._now_ms if self._taking else self._taken_ms, 0)

    def judge(self) -> None:
        """Whether what the newest sample asks for, and each before it, came to hold in time."""
        now_ms, current = self._now_ms, self._machine_limits()
        if self._newest is None or self._is_deaf:
            self._cuts.clear()
        for cut in self._cuts:
            self._must(now_ms <= cut.due_ms, "over its allowance for so many milliseconds", now_ms - cut.since_ms)
            self.over_ms_longest = max(self.over_ms_longest, now_ms - cut.since_ms)
        wanted = self._cut_wanted(current)
        # A newer sample that allows more than an older one takes its place.
        for cut in self._cuts:
            cut.rate = max(cut.rate, inf if wanted is None else wanted)
        self._cuts = [cut for cut in self._cuts if _rate(current) > cut.rate]

    def _owe(self, since_ms: int, within_ms: int) -> None:
        """From now on the newest sample's cut is owed, if it asks for one."""
        current = self._machine_limits()
        wanted = self._cut_wanted(current)
        if wanted is not None and _rate(current) > wanted:
            due_ms = since_ms + within_ms + self._node.settings.guard_deadline_ms + SLACK_MS
            self._cuts.append(Cut(since_ms, due_ms, wanted))

    def _cut_wanted(self, current: Limits) -> float | None:
        """CPUs that the node's own decision leaves to best-effort, where that is less than they have now."""
        if self._newest is None or self._is_deaf:
            return None
        own = self._own(self._newest, current)
        if own.answer != "set" or own.limits is None or not looser(current, own.limits):
            return None
        # So much more the rule leaves as it is.
        return _rate(own.limits) + self._node.machine.cpus * BYPASSED_PART

    @property
    def _is_deaf(self) -> bool:
        """Whether the kernel keeps the agent from doing its duty."""
        return self._node.kernel.hides or self._node.kernel.refuses

    def _allowed(self, before: Limits, limits: Limits, intent: NodeOutcome) -> None:
        own = self._own(self.samples[intent.seq], before)
        self._must(own.limits is not None, "acts where the node cannot decide", intent)
        assert own.limits is not None
        self._must(not looser(limits, own.limits), "gives more than its own decision", own.limits, intent)
        if intent.bound == THROTTLED:
            self._must(limits.be_cfs_quota_us == QUOTA_US_MIN, "throttled by another quota than the least", limits)
        elif intent.origin == "guard":
            self._must(limits == own.limits, "the guard does not carry out its own decision", own.limits, intent)

    def _own(self, sample: NodeSample, limits: Limits) -> Decision:
        now = msgspec.structs.replace(sample, limits=limits, since_raise_ms=self._since_raise_ms())
        pods = self._pods if sample is self._newest else self._node.world.checker.pods[sample.pods_revision]
        return decide(now, self._node.facts, pods, self._policy)

    def _see(self, seq: int) -> None:
        """What this sample should say: read independently of the agent, at the same instant."""
        node, mono_ns = self._node, self._node.clock.mono_ns()
        since_ns = None if self._mirrored_ns is None else mono_ns - self._mirrored_ns
        again = since_ns is not None and since_ns < RATE_NS_MIN
        if not again:
            self._reading, self._mirrored_ns = self._mirror.read(mono_ns), mono_ns
            self._hidden = node.kernel.hides
        self.samples[seq] = NodeSample(
            node=node.name,
            boot_id=self.boot_id,
            seq=seq,
            observed_ms=0,
            interval_ms=(since_ns or 0) // 1_000_000 if again else self._reading.interval_ms,
            policy_version=node.policy.version,
            facts_revision=revision_of(node.facts),
            pods_revision=revision_of(node.pods),
            use=self._reading.use,
            pod_use=self._reading.pod_use,
            limits=self._machine_limits(),
            since_raise_ms=self._since_raise_ms(),
        )

    def _carries(self, sample: NodeSample) -> None:
        """Pods and facts come where they changed, and both every minute."""
        said = (sample.facts_revision, sample.pods_revision)
        whole = sample.pods is not None and sample.facts is not None
        self._must(whole or self._now_ms - self._keyframe_ms < KEYFRAME_MS, "a keyframe is overdue")
        self._must(said[0] == self._said[0] or sample.facts == self._node.facts, "facts changed and are not told")
        self._must(said[1] == self._said[1] or sample.pods == self._node.pods, "pods changed and are not told")
        self._must(sample.pods in (None, self._node.pods), "other pods than the node's")
        if whole:
            self._keyframe_ms = self._now_ms
        self._said = said

    def _dated(self, sample: NodeSample) -> None:
        """Event time keeps step with monotonic time, and starts anew where the wall clock was set."""
        off_ms = abs(sample.observed_ms - self._node.clock.wall_ms())
        self._must(off_ms <= WALL_DRIFT_MS_MAX, "a sample's time is off by milliseconds", off_ms)
        now = sample.clock_epoch, sample.observed_ms - self._now_ms
        self._must(self._dates[0] < now[0] or self._dates == now, "event time jumps within a clock epoch")
        self._dates = now

    def _since_raise_ms(self) -> int | None:
        return None if self._raised_ms is None else self._now_ms - self._raised_ms

    def _machine_limits(self) -> Limits:
        return VirtualKernel(self._node.machine).limits()

    def _other_groups(self) -> dict[str, tuple[object, ...]]:
        return {
            path: (group.quota_us, group.weight, group.cpuset)
            for path, group in self._node.machine.groups.items()
            if not path.startswith(BEST_EFFORT)
        }


def _rate(limits: Limits) -> float:
    """CPUs that both knobs together leave."""
    cpus = inf if limits.be_cpuset is None else len(limits.be_cpuset)
    return min(cpus, quota_rate(limits))
