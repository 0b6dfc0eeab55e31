"""Models a node under another policy: limit, bounds of use, successors of evicted pods (docs/what-if.md)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec

from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeFacts, Pod, revision_of
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import Limits, NodeSample, NodeUse, PodUse
from slacktide.streams.decisions.suppress.cpu_suppress import looser, measured, quota_rate

DEFAULT_MS = 30_000
"""Default time until a successor runs, if the node has no example yet."""
Part = tuple[PodUse, Pod]


@dataclass(slots=True)
class Successors:
    """Successors in a node's trace, and victims of the trace that another policy keeps."""

    kept: dict[str, Part] = field(default_factory=dict)
    """Evicted pods with their last sample, until their successor is recorded."""
    _last: dict[str, Part] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)
    _awaited: list[tuple[str, int]] = field(default_factory=list)
    """Victims that ended: uid, and time since in ms."""
    _gaps: list[int] = field(default_factory=list)

    @property
    def after_ms(self) -> int:
        """Return the mean time from a pod's end to its successor's first sample on this node."""
        return round(sum(self._gaps) / len(self._gaps)) if self._gaps else DEFAULT_MS

    def follow(self, sample: NodeSample, pods: Sequence[Pod], victims: Collection[str]) -> dict[str, str]:
        """Add a sample. Returns new successors with their predecessors.

        ``sample``: as recorded. ``pods``: its pods. ``victims``: uids that the recorded policy has evicted so far.
        """
        came = {}
        self._awaited = [(uid, ago_ms + sample.interval_ms) for uid, ago_ms in self._awaited]
        known = {pod.uid: pod for pod in pods}
        best_effort = {uid for uid, pod in known.items() if is_best_effort(pod)}
        now = {use.uid: (use, known[use.uid]) for use in sample.pod_use if use.uid in best_effort}
        for uid in [uid for uid in self._last if uid not in now]:
            part = self._last.pop(uid)
            if uid in victims:
                self._awaited.append((uid, 0))
                self.kept[uid] = part
        for uid, part in now.items():
            if uid not in self._seen and self._awaited:
                before, ago_ms = self._awaited.pop(0)
                self._gaps.append(ago_ms)
                self.kept.pop(before, None)
                came[uid] = before
            if uid not in victims or uid not in self._last:
                self._last[uid] = part  # for a victim: its state before it was throttled
        self._seen.update(now)
        return came


END_MS = 450
"""Time from the end of a victim's grace period to an empty cgroup, measured (docs/advise.md)."""
NEAR_PCT = 90
"""Best-effort pods that use this much of their limit are throttled by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bounds in millicores."""

    low_milli: float
    high_milli: float


@dataclass(slots=True)
class _Gone:
    """A pod that the other policy evicted: terminating for its grace period, then gone."""

    left_ms: int
    by_both: bool = False
    """The recorded policy evicted it at the same moment, so the trace shows its end and successor."""


@dataclass(slots=True)
class Hypothetical:
    """A node's state under the other policy."""

    limits: Limits | None = None
    since_raise_ms: int | None = None
    since_mem_ms: int | None = None
    since_cpu_ms: int | None = None
    gone: dict[str, _Gone] = field(default_factory=dict)
    begun: bool = False
    successors: Successors | None = None
    """None: evicted pods are not replaced."""

    def sample(self, recorded: NodeSample, pods: Sequence[Pod] | None, policy_version: str) -> NodeSample:
        """Return the sample as it would have been: with this limit, and without evicted pods.

        ``recorded``: the recorded sample. ``pods``: its pods; None: unknown. ``policy_version``: of the other policy.
        """
        self._age(recorded)
        sample = msgspec.structs.replace(
            recorded, policy_version=policy_version, limits=self.limits, since_raise_ms=self.since_raise_ms
        )
        dying = [uid for uid, gone in self.gone.items() if gone.left_ms > 0 or gone.by_both]
        recorded_dying = recorded.evict.dying if self.successors is None else ()
        evict = msgspec.structs.replace(
            recorded.evict,
            since_mem_ms=self.since_mem_ms,
            since_cpu_ms=self.since_cpu_ms,
            dying=[*recorded_dying, *(uid for uid in dying if uid not in recorded_dying)],
        )
        sample = msgspec.structs.replace(sample, evict=evict)
        away = {uid for uid in self.gone if self.away(uid)}
        if not (away or self.kept()) or pods is None:
            return sample
        return _changed(sample, pods, away, self.kept())

    def follow(self, recorded: NodeSample, pods: Sequence[Pod], victims: Collection[str]) -> None:
        """Follow pods that ended or started; ``victims``: uids that the recorded policy evicted."""
        if self.successors is None:
            return
        for uid, before in self.successors.follow(recorded, pods, victims).items():
            gone = self.gone.pop(before, None)
            if gone is not None and not gone.by_both:  # its successor starts later under this policy
                self.gone[uid] = gone

    def kept(self) -> list[Part]:
        """Return the pods that only the recorded policy evicted, and that would still run."""
        if self.successors is None:
            return []
        kept, gone = self.successors.kept, self.gone
        return [part for uid, part in kept.items() if uid not in gone or not (gone[uid].by_both or self.away(uid))]

    def away(self, uid: str) -> bool:
        """Return whether the other policy has evicted the pod, and its grace period is over."""
        gone = self.gone.get(uid)
        return gone is not None and gone.left_ms <= 0 and not gone.by_both

    def obey(self, command: NodeCommand, pods: Sequence[Pod]) -> None:
        """Apply a command."""
        for hold in command.hold:
            self.hold(hold.limits)
        for victim in command.evict:
            self.evict(victim.uid, victim.rule, pods)

    def hold(self, limits: Limits) -> None:
        """Apply limits."""
        if self.limits is None or looser(limits, self.limits):
            self.since_raise_ms = 0
        self.limits = limits

    def evict(self, uid: str, rule: str, pods: Sequence[Pod], *, by_both: bool = False) -> bool:
        """Evict a pod; return whether it was running. ``by_both``: the recorded policy evicts it now, too."""
        if uid in self.gone:
            return False
        grace_s = next((pod.grace_s for pod in pods if pod.uid == uid), 0)
        self.gone[uid] = _Gone(left_ms=grace_s * 1_000 + END_MS, by_both=by_both)
        if "Mem" in rule:
            self.since_mem_ms = 0
        else:
            self.since_cpu_ms = 0
        return True

    def _age(self, recorded: NodeSample) -> None:
        if self.limits is None:  # an agent's first sample may lack it
            self.limits, self.since_raise_ms = measured(recorded.limits), recorded.since_raise_ms
        elif self.since_raise_ms is not None:
            self.since_raise_ms += recorded.interval_ms
        if not self.begun:
            self.begun = True
            self.since_mem_ms, self.since_cpu_ms = recorded.evict.since_mem_ms, recorded.evict.since_cpu_ms
            return
        passed_ms = recorded.interval_ms
        self.since_mem_ms = None if self.since_mem_ms is None else self.since_mem_ms + passed_ms
        self.since_cpu_ms = None if self.since_cpu_ms is None else self.since_cpu_ms + passed_ms
        for gone in self.gone.values():
            gone.left_ms -= passed_ms
        if self.successors is not None:
            back_ms = -self.successors.after_ms
            self.gone = {uid: gone for uid, gone in self.gone.items() if gone.by_both or gone.left_ms > back_ms}


class Listed:
    """A pod list that many samples name."""

    def __init__(self, pods: Sequence[Pod]) -> None:
        self.pods = pods
        self._known = {pod.uid: pod for pod in pods}
        self._others = {uid for uid, pod in self._known.items() if not is_best_effort(pod)}

    def best_effort(self, sample: NodeSample) -> list[tuple[PodUse, Pod | None]]:
        """Return the best-effort pods with their use: by the pod list, else by cgroup."""
        known, others = self._known, self._others
        return [
            (use, known.get(use.uid))
            for use in sample.pod_use
            if use.uid not in others and (use.best_effort_group or use.uid in known)
        ]


def best_effort(sample: NodeSample, pods: Sequence[Pod]) -> list[tuple[PodUse, Pod | None]]:
    """Return the best-effort pods with their use: by the pod list, else by cgroup."""
    return Listed(pods).best_effort(sample)


def allowed_milli(limits: Limits, facts: NodeFacts) -> float:
    """Return the CPU that a limit allows, at most the node's."""
    cpus = inf if limits.be_cpuset is None else len(limits.be_cpuset)
    return min(quota_rate(limits), cpus, (facts.capacity.cpu_milli or 0) / 1_000) * 1_000


def used_milli(
    pods: Sequence[tuple[PodUse, Pod | None]],
    recorded_milli: float,
    other_milli: float,
    room_milli: float,
    away: Collection[str] = (),
) -> Range:
    """Compute the use of best-effort pods under another limit.

    ``pods``: the recorded pods with their use. ``recorded_milli``: the recorded limit. ``other_milli``: the other
    limit. ``room_milli``: idle CPU of the rest of the node. ``away``: uids of pods that would not be there.
    """
    whole = float(sum(use.cpu_milli or 0 for use, _ in pods))
    stay = [(use, pod) for use, pod in pods if use.uid not in away]
    used = float(sum(use.cpu_milli or 0 for use, _ in stay))
    looser = other_milli > recorded_milli or len(stay) < len(pods)  # the remaining pods share the CPU of the others
    # A limit lowered within the interval was exceeded before that; so it would be here.
    least = min(used, other_milli + max(0.0, whole - recorded_milli))
    if not looser or not held_back(pods, whole, recorded_milli):
        return Range(low_milli=least, high_milli=least)
    demand = sum(max(use.cpu_milli or 0, _demand_milli(pod)) for use, pod in stay)
    return Range(low_milli=least, high_milli=max(least, min(other_milli, demand, room_milli)))


def held_back(pods: Sequence[tuple[PodUse, Pod | None]], used_milli: float, limit_milli: float) -> bool:
    """Return whether a limit throttled these pods, by their total use."""
    return used_milli * 100 >= limit_milli * NEAR_PCT or any(use.throttled_periods for use, _ in pods)


def _demand_milli(pod: Pod | None) -> float:
    """Return the pod's maximum use: limit, else request, else unlimited."""
    if pod is None:
        return inf
    for amounts in (pod.limits, pod.requests):
        for milli in (amounts.batch_cpu_milli, amounts.cpu_milli):
            if milli:
                return milli
    return inf


def _changed(sample: NodeSample, pods: Sequence[Pod], away: set[str], more: Sequence[Part]) -> NodeSample:
    """Return the sample without some of its pods, and with additional ones, and their use."""
    listed = [*(pod for pod in pods if pod.uid not in away), *(pod for _, pod in more)]
    lost, added = [use for use in sample.pod_use if use.uid in away], [use for use, _ in more]
    cpu_milli, mem_bytes = sample.use.cpu_milli, sample.use.mem_bytes
    if cpu_milli is not None:
        cpu_milli = max(0, cpu_milli - sum(use.cpu_milli or 0 for use in lost))
        cpu_milli += sum(use.cpu_milli or 0 for use in added)
    if mem_bytes is not None:
        mem_bytes = max(0, mem_bytes - sum(use.mem_bytes or 0 for use in lost))
        mem_bytes += sum(use.mem_bytes or 0 for use in added)
    return msgspec.structs.replace(
        sample,
        pods=listed,
        pods_revision=revision_of(listed),
        pod_use=[*(use for use in sample.pod_use if use.uid not in away), *added],
        use=NodeUse(cpu_milli=cpu_milli, mem_bytes=mem_bytes, pressure=sample.use.pressure),
    )
