"""Makes samples from the kernel's figures: with sequence number, time, and pods and facts when due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as replace_struct

from slacktide.agents.clock import Clock, EventTime
from slacktide.agents.node.kernel import Kernel, Reading
from slacktide.agents.node.protocol import Taken
from slacktide.schemas.inventory import NodeFacts, Pod, revision_of, unended
from slacktide.schemas.qos import as_held
from slacktide.schemas.sample import ContainerBurst, Drift, EvictState, Limits, LsPressure, Missing, NodeSample
from slacktide.streams.decisions.known_pods import KnownPods

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
        ls_lately_cpu_milli: int | None,
        ls_pressure: LsPressure | None = None,
    ) -> Taken:
        """Read the kernel and return a sample. ``limits``: the known ones, in case the kernel is not read again."""
        reading = self._read(now_ns, limits)
        self._seq += 1
        keyframe = self._keyframe_due(now_ns)
        inventory, published = self.inventory, self._published
        remembered = self._remembered(reading, inventory, now_ns)
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
            facts=inventory.facts
            if keyframe or not published or published.facts_revision != inventory.facts_revision
            else None,
            pods=list(inventory.pods)
            if keyframe or not published or published.pods_revision != inventory.pods_revision
            else None,
            missing=reading.missing + remembered.missing,
            evict=remembered.evict,
            drift=remembered.drift,
            burst=remembered.burst,
            ls_lately_cpu_milli=ls_lately_cpu_milli,
            ls_pressure=ls_pressure,
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
