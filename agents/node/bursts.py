"""Tracks the burst tokens of containers, and finds containers whose CPU quota may change, once per second.

A pod without quota burst is read until its quota is no higher than its limit, since an earlier run may have raised it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slacktide.agents.node.kernel import UNLIMITED_US, ContainerCpu, Kernel
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import cpu_burst_on
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import ContainerBurst, Missing
from slacktide.streams.decisions.burst.cpu_burst_quota import Limiter, lends, limiter_capacity, start_tokens
from slacktide.streams.decisions.burst.cpu_burst_value import may_burst, pod_burst_config
from slacktide.streams.decisions.burst.node_burst import OFF, movable, next_limiter

LOOK_NS_MIN = 900_000_000
"""Interval of readings: a second, less a timer's jitter."""
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The result of one reading."""

    containers: list[ContainerBurst]
    missing: list[Missing]


@dataclass(frozen=True, slots=True)
class _Bucket:
    limiter: Limiter | None
    counted_ns: int


@dataclass(frozen=True, slots=True)
class _Looked:
    pod: Pod
    config: CpuBurst


class Bursts:
    """The token buckets of one boot's containers."""

    def __init__(self, *, node: str, boot_id: str, kernel: Kernel) -> None:
        self._node = node
        self._boot_id = boot_id
        self._kernel = kernel
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._off: set[str] = set()
        self._at_limit: set[str] = set()
        self._looked_ns: int | None = None
        self._reads = False

    def state(self, facts: NodeFacts, pods: Sequence[Pod], policy: Policy, now_ns: int) -> Seen:
        """Read the containers whose quota may change."""
        if self._looked_ns is not None and now_ns - self._looked_ns < LOOK_NS_MIN:
            return Seen(containers=[], missing=[])
        self._looked_ns = now_ns
        node = cpu_burst_on(policy, facts)
        bursting = {pod.uid: _Looked(pod, pod_burst_config(node, pod.cpu_burst)) for pod in pods if _limited(pod)}
        off = {uid for uid, one in bursting.items() if not lends(one.config)}
        self._at_limit &= off
        looked = {uid: one for uid, one in bursting.items() if uid not in self._at_limit}
        seen = self._look(looked, now_ns)
        # Twice, since a decision may arrive only after the next reading.
        self._at_limit |= (off & self._off) - {one.pod for one in seen.containers}
        self._off = off
        return seen

    def above_limit(self, pods: Sequence[Pod], now_ns: int) -> list[ContainerBurst]:
        """Return the containers whose quota, or whose pod's quota, is above the limit, whatever the policy."""
        return self._look({pod.uid: _Looked(pod, OFF) for pod in pods if _limited(pod)}, now_ns).containers

    def _look(self, looked: Mapping[str, _Looked], now_ns: int) -> Seen:
        if not looked and not self._reads:
            return Seen(containers=[], missing=[])
        self._reads = bool(looked)
        spare = {uid for uid, one in looked.items() if lends(one.config)}
        reading = self._kernel.containers([one.pod for one in looked.values()], now_ns, spare)
        before = self._buckets
        # A calm pod is skipped. Its tokens are counted once it is throttled.
        self._buckets = {key: bucket for key, bucket in before.items() if key[0] in reading.calm}
        held: dict[str, list[ContainerBurst]] = {uid: [] for uid in looked if uid not in reading.calm}
        for one in reading.containers:
            if one.quota_us != UNLIMITED_US:  # set by another program: the kubelet writes a quota for each limit
                key = (one.pod, one.container)
                burst, self._buckets[key] = self._step(one, looked[one.pod], before.get(key), now_ns)
                held[one.pod].append(burst)
        moving = [one for uid, bursts in held.items() for one in movable(looked[uid].pod, bursts, looked[uid].config)]
        return Seen(containers=moving, missing=reading.missing)

    def _step(
        self, one: ContainerCpu, looked: _Looked, before: _Bucket | None, now_ns: int
    ) -> tuple[ContainerBurst, _Bucket]:
        """Return the burst state of a container for the sample, and its bucket after the decision."""
        bucket = before or _Bucket(None, now_ns)
        limiter, capacity = bucket.limiter, limiter_capacity(looked.config)
        elapsed_s = (now_ns - bucket.counted_ns) // _SECOND_NS
        known = limiter is not None and limiter.capacity_tokens == capacity
        burst = ContainerBurst(
            pod=one.pod,
            container=one.container,
            quota_us=one.quota_us,
            pod_quota_us=one.pod_quota_us,
            throttled_ratio=(one.throttled_periods or 0) / one.periods if one.periods else None,
            used_milli=one.used_milli,
            tokens=None if limiter is None else limiter.tokens,
            capacity_tokens=None if limiter is None else limiter.capacity_tokens,
            start_tokens=0 if known or capacity is None else start_tokens(capacity, self._draw(one)),
            elapsed_s=elapsed_s,
        )
        limit_milli = next(of.limits.cpu_milli or 0 for of in looked.pod.containers if of.name == one.container)
        after = next_limiter(burst, limit_milli, looked.config)
        return burst, _Bucket(after, bucket.counted_ns + elapsed_s * _SECOND_NS)

    def _draw(self, one: ContainerCpu) -> float:
        """Return a number in [0, 1) for each container, stable within a boot."""
        text = f"{self._node}\x00{self._boot_id}\x00{one.pod}\x00{one.container}"
        return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 11) / 2**53


def _limited(pod: Pod) -> bool:
    return may_burst(pod) and any(one.limits.cpu_milli for one in pod.containers)
