"""Makes samples, decides whether the stream or the guard is in charge, and which commands may act. Pure.

Order comes from a sample's ``seq`` within a boot, never an offset. If no command arrives before the deadline, the guard
is in charge until two successive samples are answered in time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from msgspec.structs import replace as replace_struct

from slacktide.agents.clock import Clock, EventTime
from slacktide.agents.node.interfaces import Beside, Kernel, Reading
from slacktide.schemas.command import Hold, NodeCommand
from slacktide.schemas.inventory import NodeFacts, Pod, revision_of, unended
from slacktide.schemas.knob_table import QUOTA_US_MIN
from slacktide.schemas.qos import as_held
from slacktide.schemas.sample import ContainerBurst, Drift, EvictState, Limits, Missing, NodeSample
from slacktide.streams.decisions.because import WantedSetting
from slacktide.streams.decisions.evict.node_evict import Eviction
from slacktide.streams.decisions.known_pods import KnownPods
from slacktide.streams.decisions.node_decision import NodeDecision
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET, looser

RATE_NS_MIN = 200_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Facts and pods in force, with their revisions."""

    facts: NodeFacts
    pods: Sequence[Pod]
    facts_revision: str
    pods_revision: str


def inventory_of(facts: NodeFacts, pods: Sequence[Pod], exclusive: Mapping[str, str] | None = None) -> Inventory:
    """Compute the revisions of facts and pods, without ended pods.

    Pods that claim another class than they are held as and pods in ``exclusive`` (CPU lists by uid) are marked.
    """

    def marked(pod: Pod) -> Pod:
        cpus, held = (exclusive or {}).get(pod.uid, ""), as_held(pod)
        return replace_struct(held, exclusive_cpus=cpus) if cpus else held

    known = KnownPods([marked(pod) for pod in unended(pods)])
    return Inventory(facts=facts, pods=known, facts_revision=revision_of(facts), pods_revision=revision_of(list(known)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """State of earlier acts that a decision needs."""

    evict: EvictState
    drift: list[Drift]
    burst: list[ContainerBurst]
    missing: list[Missing]


class Sampler:
    """Takes samples of one boot. ``remembered`` is called once per sample with the reading and the inventory."""

    def __init__(
        self,
        *,
        node: str,
        boot_id: str,
        kernel: Kernel,
        clock: Clock,
        keyframe_ms: int,
        inventory: Inventory,
        remembered: Callable[[Reading, Inventory, int], Remembered],
    ) -> None:
        self.keyframe_wanted = False
        self.inventory = inventory
        self.event_time = EventTime(clock.wall_ms(), clock.mono_ns())
        self._remembered = remembered
        self._node = node
        self._boot_id = boot_id
        self._kernel = kernel
        self._clock = clock
        self._keyframe_ns = keyframe_ms * 1_000_000
        self._keyframe_at_ns: int | None = None
        self._published: Inventory | None = None
        self._reading: Reading | None = None
        self._read_at_ns = 0
        self._seq = 0

    def take(
        self,
        *,
        now_ns: int,
        limits: Limits | None,
        policy_version: str,
        since_raise_ms: int | None,
        beside: Beside,
    ) -> Taken:
        """Read the kernel and return a sample. ``limits``: the known ones, in case the kernel is not read again."""
        reading = self._read(now_ns, limits)
        self._seq += 1
        keyframe = self._keyframe_due(now_ns)
        inventory, published = self.inventory, self._published
        remembered = self._remembered(reading, inventory, now_ns)
        new_facts = keyframe or not published or published.facts_revision != inventory.facts_revision
        new_pods = keyframe or not published or published.pods_revision != inventory.pods_revision
        self._published = inventory
        sample = NodeSample(
            node=self._node,
            boot_id=self._boot_id,
            seq=self._seq,
            observed_ms=self.event_time.at(now_ns, self._clock.wall_ms()),
            clock_epoch=self.event_time.epoch,
            interval_ms=reading.interval_ms,
            policy_version=policy_version,
            facts_revision=inventory.facts_revision,
            pods_revision=inventory.pods_revision,
            use=reading.use,
            pod_use=reading.pod_use,
            limits=reading.limits,
            since_raise_ms=since_raise_ms,
            facts=inventory.facts if new_facts else None,
            pods=list(inventory.pods) if new_pods else None,
            missing=reading.missing + remembered.missing,
            evict=remembered.evict,
            drift=remembered.drift,
            burst=remembered.burst,
            pod_pressure=list(beside.pod_pressure),
            ls_lately_cpu_milli=beside.ls_lately_cpu_milli,
            ls_pressure=beside.ls_pressure,
        )
        return Taken(sample=sample, facts=inventory.facts, pods=inventory.pods, taken_ns=now_ns)

    def _read(self, now_ns: int, limits: Limits | None) -> Reading:
        """Read the kernel. A keyframe right after another sample repeats its rates, which would be too coarse."""
        since_ns = now_ns - self._read_at_ns
        if self._reading is not None and since_ns < RATE_NS_MIN:
            return replace(self._reading, interval_ms=since_ns // 1_000_000, limits=limits)
        self._reading, self._read_at_ns = self._kernel.read(now_ns), now_ns
        return self._reading

    def _keyframe_due(self, now_ns: int) -> bool:
        since_ns = None if self._keyframe_at_ns is None else now_ns - self._keyframe_at_ns
        due = self.keyframe_wanted or since_ns is None or since_ns >= self._keyframe_ns
        if due:
            self._keyframe_at_ns = now_ns
            self.keyframe_wanted = False
        return due


HELD_SAMPLES = 64
IN_TIME_TO_HAND_BACK = 2

Refusal = Literal["foreign", "other boot", "unknown sample", "expired", "superseded", "repeated", "older"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A sample with all inputs of its decision."""

    sample: NodeSample
    facts: NodeFacts
    pods: Sequence[Pod]
    taken_ns: int


class Protocol:
    """Order of samples and commands of one boot, and who is in charge."""

    def __init__(self, *, node: str, boot_id: str, deadline_ns: int) -> None:
        self.in_charge: Literal["stream", "guard"] = "stream"
        self._node = node
        self._boot_id = boot_id
        self._deadline_ns = deadline_ns
        self._held: deque[Taken] = deque(maxlen=HELD_SAMPLES)
        self._answered_seq = -1
        self._settled_seq = -1
        self._settled_by_guard = False
        self._in_time = 0

    @property
    def newest(self) -> Taken | None:
        """The newest sample, answered or not."""
        return self._held[-1] if self._held else None

    @property
    def awaits_answer(self) -> bool:
        """Whether the newest sample is not answered yet."""
        return bool(self._held) and self._held[-1].sample.seq > self._answered_seq

    def took(self, taken: Taken) -> None:
        """Record a new sample. Its seq is above all earlier ones."""
        self._held.append(taken)

    def deadline_ns(self) -> int | None:
        """Return when the guard takes charge, counted from the oldest unanswered sample."""
        if self.in_charge == "guard":
            return None
        waiting = next((taken for taken in self._held if taken.sample.seq > self._answered_seq), None)
        return None if waiting is None else waiting.taken_ns + self._deadline_ns

    def overdue(self, now_ns: int) -> bool:
        """Return whether the guard has just taken charge: true once, when the deadline has passed."""
        deadline_ns = self.deadline_ns()
        if deadline_ns is None or now_ns < deadline_ns:
            return False
        self.in_charge = "guard"
        self._in_time = 0
        return True

    def judge(self, command: NodeCommand, now_ns: int) -> Taken | Refusal:
        """Return the sample that a command answers, or why it is refused. Refused commands count as answers, too."""
        taken = self.held(command.seq)
        if command.node != self._node:
            return "foreign"
        if command.boot_id != self._boot_id:
            return "other boot"
        if taken is None:
            newest = self.newest
            return "unknown sample" if newest is None or command.seq > newest.sample.seq else "expired"
        self._count_answer(taken, now_ns)
        if command.seq > self._settled_seq:
            return taken
        if self._settled_by_guard:
            return "superseded"
        return "repeated" if command.seq == self._settled_seq else "older"

    def held(self, seq: int) -> Taken | None:
        """Return the sample with this seq, if it is still held."""
        return next((taken for taken in self._held if taken.sample.seq == seq), None)

    def settle(self, seq: int, *, by_guard: bool) -> None:
        """Record that a sample is decided. Commands for it and for older ones no longer act."""
        assert seq > self._settled_seq, f"sample {seq} settled after {self._settled_seq}"
        self._settled_seq = seq
        self._settled_by_guard = by_guard

    def precede(self, seq: int) -> None:
        """Record a cut on this sample before its answer. Commands for older samples, which saw less, no longer act."""
        if seq - 1 > self._settled_seq:
            self.settle(seq - 1, by_guard=True)

    def settled(self, seq: int) -> bool:
        """Return whether this sample or a newer one is decided."""
        return seq <= self._settled_seq

    def _count_answer(self, taken: Taken, now_ns: int) -> None:
        seq = taken.sample.seq
        if seq <= self._answered_seq:
            return
        follows = seq == self._answered_seq + 1
        self._answered_seq = seq
        if now_ns - taken.taken_ns > self._deadline_ns:
            self._in_time = 0
            return
        self._in_time = self._in_time + 1 if follows else 1
        if self._in_time >= IN_TIME_TO_HAND_BACK:
            self.in_charge = "stream"


PERIOD_US_MIN, PERIOD_US_MAX = 1_000, 1_000_000
"""The kernel's range, on cgroup v1 and v2."""


class Accepted(NamedTuple):
    """The accepted parts of a command. Pods and settings are the agent's own; the command only selects them."""

    hold: Hold
    evict: tuple[Eviction, ...]
    settings: tuple[WantedSetting, ...]


def accepted(command: NodeCommand, taken: Taken, current: NodeSample, own: NodeDecision) -> Accepted | None:
    """Return the accepted parts of a command; None: it disagrees with ``own``, the agent's decision for ``current``."""
    hold = next((hold for hold in command.hold if (hold.rule, hold.target) == (RULE, TARGET)), None)
    if not command.hold and taken.sample.limits is not None:
        hold = Hold(id=command.id, rule=RULE, target=TARGET, limits=taken.sample.limits, bound="kept")
    if hold is None or own.limits.limits is None:
        return None
    if not _holdable(hold.limits, taken) or looser(hold.limits, own.limits.limits):
        return None
    # The command's victims in order, without terminating ones, and its settings: the agent must want each itself.
    mine = {one.pod.uid: one for one in own.evict}
    victims = dict.fromkeys(one.uid for one in command.evict if one.uid not in current.evict.dying)
    ours = {(one.group, one.knob, one.value): one for one in own.settings}
    wanted = dict.fromkeys((one.group, one.knob, one.value) for one in command.settings)
    if not mine.keys() >= victims.keys() or not ours.keys() >= wanted.keys():
        return None
    return Accepted(hold, tuple(mine[uid] for uid in victims), tuple(ours[one] for one in wanted))


def _holdable(limits: Limits, taken: Taken) -> bool:
    if limits.be_cpuset is not None:
        held = taken.sample.limits and taken.sample.limits.be_cpuset
        known = {one.cpu for one in taken.facts.processors} | set(held or ())
        ascending = limits.be_cpuset == sorted(set(limits.be_cpuset))  # as the field is defined, and as it reads back
        if not limits.be_cpuset or not ascending or not known.issuperset(limits.be_cpuset):
            return False
    quota_us, period_us = limits.be_cfs_quota_us, limits.be_cfs_period_us
    return PERIOD_US_MIN <= period_us <= PERIOD_US_MAX and (quota_us is None or quota_us >= QUOTA_US_MIN)
