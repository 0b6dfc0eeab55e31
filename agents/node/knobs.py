"""What the agent remembers of knobs: which it has set, when each is read, which others set, too, and burst tokens.

Only knobs that this agent has set, also in earlier runs, are restored. If another program sets the same value again
within a minute, or changes it a third time, that is a conflict. It is reported once, and the agent waits one minute,
then two, up to an hour, with one try after each. Refused writes are retried with growing pauses.
"""

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from slacktide.agents.files import write_whole
from slacktide.agents.node.interfaces import UNLIMITED_US, ContainerCpu, Held, Kernel
from slacktide.schemas.bounds import KnobValue
from slacktide.schemas.codec import MALFORMED
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.knob import KnobKey, container_of, uid_of
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on, cpu_burst_on, resource_qos_on
from slacktide.schemas.policy.strategies import CpuBurst
from slacktide.schemas.sample import ContainerBurst, Missing
from slacktide.streams.decisions.burst.cpu_burst_quota import Limiter, lends, limiter_capacity, start_tokens
from slacktide.streams.decisions.burst.node_burst import (
    BURST_RULE,
    OFF,
    QUOTA_RULE,
    may_burst,
    movable,
    next_limiter,
    pod_burst_config,
)
from slacktide.streams.decisions.knobs import ISOLATION

log = logging.getLogger(__name__)
FILE = "knobs.json"


class Tuned:
    """The set knobs, in memory and, given a folder, on disk before one is set. Never raises.

    If the disk refuses, an agent does not restore knobs from before its restart.
    """

    def __init__(self, state_folder: Path | None = None) -> None:
        self._file = None if state_folder is None else state_folder / FILE
        self.keys: set[KnobKey] = self._load()

    def add(self, keys: Iterable[KnobKey]) -> None:
        """Record knobs that are about to be set."""
        self._keep(self.keys | set(keys))

    def drop(self, keys: Iterable[KnobKey]) -> None:
        """Remove knobs that are restored, or whose cgroups are gone."""
        self._keep(self.keys - set(keys))

    def _keep(self, keys: set[KnobKey]) -> None:
        if keys == self.keys:
            return
        self.keys = keys
        if self._file is None:
            return
        try:
            write_whole(self._file, msgspec.json.encode(sorted(keys)))
        except OSError as exc:
            log.warning("could not be stored for the next start", extra={"file": str(self._file), "why": str(exc)})

    def _load(self) -> set[KnobKey]:
        if self._file is None:
            return set()
        try:
            return set(msgspec.json.decode(self._file.read_bytes(), type=list[KnobKey]))
        except FileNotFoundError:
            return set()
        except (OSError, *MALFORMED) as exc:
            log.warning("the stored state is lost", extra={"file": str(self._file), "why": str(exc)})
            return set()


READ_NS = 20_000_000_000


class WatchedKnobs:
    """The wanted knobs of a node, by cgroup, and when each is read next."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._keys: Mapping[str, Sequence[KnobKey]] = {}
        self._order: Sequence[str] = []
        self._turn = 0
        self._read_ns: int | None = None
        self._made_of: dict[str, str] = {}
        self._soon: set[str] = set()

    def watch(self, keys: Iterable[KnobKey], known: Mapping[str, Pod], changed: Collection[str]) -> set[str]:
        """Watch these knobs; those in ``changed`` are read next. Return cgroups that are new or were recreated."""
        by_group: dict[str, list[KnobKey]] = {}
        for key in keys:
            by_group.setdefault(key.group, []).append(key)
        made_of = {group: _made_of(group, known) for group in by_group}
        fresh = {group for group, what in made_of.items() if self._made_of.get(group) != what}
        self._soon |= {*fresh, *changed} | {group for group, held in by_group.items() if held != self._keys.get(group)}
        self._keys, self._made_of, self._order = by_group, made_of, list(by_group)
        return fresh

    def read(self, now_ns: int, urgent: Collection[str]) -> Held:
        """Read the cgroups that are due, and urgent ones."""
        since_ns = 0 if self._read_ns is None else now_ns - self._read_ns
        self._read_ns = now_ns
        count = min(len(self._order), -(-len(self._order) * since_ns // READ_NS))
        rotation = [self._order[(self._turn + number) % len(self._order)] for number in range(count)]
        self._turn = (self._turn + count) % max(1, len(self._order))
        soon, self._soon = self._soon & self._keys.keys(), set()
        first = [group for group in urgent if group in self._keys]
        groups = dict.fromkeys([*first, *(group for group in self._order if group in soon), *rotation])
        return self._kernel.held(key for group in groups for key in self._keys[group])


def _made_of(group: str, known: Mapping[str, Pod]) -> str:
    """Return the identity of a cgroup, which differs once it is recreated."""
    pod = known.get(uid_of(group))
    if pod is None:
        return ""
    name = container_of(group)
    return " ".join(one.id for one in pod.containers if not name or one.name == name)


QOS = frozenset({"CPUQOS", "MemoryQOS"})
BURSTS = frozenset({BURST_RULE, QUOTA_RULE})


def dry_run_families(facts: NodeFacts, policy: Policy) -> frozenset[str]:
    """Families of rules that only report on this node."""
    found: frozenset[str] = frozenset()
    if colocation_on(policy, facts).isolation_dry_run:
        found |= {ISOLATION}
    if resource_qos_on(policy, facts).dry_run:
        found |= QOS
    if cpu_burst_on(policy, facts).dry_run:
        found |= BURSTS
    return found


def family_of(rule: str) -> str:
    """Return a rule without its QoS class: ``MemoryQOS`` for ``MemoryQOS (beClass)``."""
    return rule.partition(" ")[0]


_SECOND_NS = 1_000_000_000
INSISTS_NS = 60 * _SECOND_NS
"""Changes within this time belong to one conflict."""
CHANGES_MAX = 2
"""This many changes within that time are set back."""
PAUSE_NS_MAX = 3_600 * _SECOND_NS
REFUSED_NS = 10 * _SECOND_NS
REFUSED_NS_MAX = 600 * _SECOND_NS
Move = Literal["set", "wait", "fight"]
"""``fight``: a conflict has just begun: report it and wait."""


@dataclass(slots=True)
class _Rival:
    left: KnobValue | None = None
    """The value that the agent left, once ``left_ns`` is set."""
    left_ns: int | None = None
    changed: bool = False
    """Whether the other program's last change is not set back yet."""
    value: KnobValue | None = None
    """The value that the other program last set."""
    changes: int = 0
    pause_ns: int = 0
    until_ns: int = 0
    fighting: bool = False


class Standoff:
    """All knobs that the agent has set."""

    def __init__(self) -> None:
        self._rivals: dict[KnobKey, _Rival] = {}

    def sees(self, key: KnobKey, held: KnobValue | None, now_ns: int) -> Move:
        """Return what to do now about a knob that holds an unwanted value."""
        rival = self._rivals.get(key)
        if rival is None:
            return "set"
        began = self._theirs(rival, held, now_ns)
        if now_ns < rival.until_ns:
            return "fight" if began else "wait"
        return "set"

    def pauses(self, key: KnobKey, now_ns: int) -> bool:
        """Return whether the agent backs off from it now."""
        rival = self._rivals.get(key)
        return rival is not None and now_ns < rival.until_ns

    def calm(self, key: KnobKey, now_ns: int) -> None:
        """Record that a knob holds the wanted value. After a minute a conflict is over."""
        rival = self._rivals.get(key)
        if rival is None:
            return
        rival.changed = False
        if rival.left_ns is not None and now_ns - rival.left_ns > INSISTS_NS:
            rival.changes, rival.pause_ns, rival.fighting = 0, 0, False

    def left(self, key: KnobKey, value: KnobValue | None, now_ns: int) -> None:
        """Record that the agent set it, and its value now."""
        rival = self._rivals.setdefault(key, _Rival())
        rival.left, rival.left_ns, rival.changed = value, now_ns, False
        if not rival.fighting:
            rival.pause_ns = 0

    def refused(self, key: KnobKey, now_ns: int) -> None:
        """Record that the kernel refused it: retry with growing pauses."""
        rival = self._rivals.setdefault(key, _Rival())
        rival.pause_ns = min(max(REFUSED_NS, rival.pause_ns * 2), REFUSED_NS_MAX)
        rival.until_ns = now_ns + rival.pause_ns

    def forget(self, of: Callable[[KnobKey], bool]) -> None:
        """Forget knobs with a new cgroup under the old name, or with a new wanted value."""
        self._rivals = {key: rival for key, rival in self._rivals.items() if not of(key)}

    def _theirs(self, rival: _Rival, held: KnobValue | None, now_ns: int) -> bool:
        """Count a change by the other program once. Return whether a conflict begins with it."""
        if rival.changed or rival.left_ns is None or held == rival.left:
            return False
        rival.changed = True
        soon = now_ns - rival.left_ns <= INSISTS_NS
        rival.changes = rival.changes + 1 if soon else 1
        again = soon and (rival.fighting or (rival.changes > 1 and held == rival.value) or rival.changes > CHANGES_MAX)
        rival.value = held
        if not again:
            rival.fighting, rival.pause_ns = False, 0
            return False
        first, rival.fighting = not rival.fighting, True
        rival.pause_ns = min(max(INSISTS_NS, rival.pause_ns * 2), PAUSE_NS_MAX)
        rival.until_ns = now_ns + rival.pause_ns
        return first


LOOK_NS_MIN = 900_000_000
"""Interval of readings: a second, less a timer's jitter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The result of one reading."""

    containers: list[ContainerBurst]
    missing: list[Missing]


@dataclass(frozen=True, slots=True)
class _Bucket:
    limiter: Limiter | None
    counted_ns: int


_Looked = tuple[Pod, CpuBurst]
"""A pod that is read, and its configuration."""


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
        bursting = {pod.uid: (pod, pod_burst_config(node, pod.cpu_burst)) for pod in pods if _limited(pod)}
        off = {uid for uid, (_, config) in bursting.items() if not lends(config)}
        self._at_limit &= off
        looked = {uid: one for uid, one in bursting.items() if uid not in self._at_limit}
        seen = self._look(looked, now_ns)
        # Twice, since a decision may arrive only after the next reading.
        self._at_limit |= (off & self._off) - {one.pod for one in seen.containers}
        self._off = off
        return seen

    def above_limit(self, pods: Sequence[Pod], now_ns: int) -> list[ContainerBurst]:
        """Return the containers whose quota, or whose pod's quota, is above the limit, whatever the policy."""
        return self._look({pod.uid: (pod, OFF) for pod in pods if _limited(pod)}, now_ns).containers

    def _look(self, looked: Mapping[str, _Looked], now_ns: int) -> Seen:
        if not looked and not self._reads:
            return Seen(containers=[], missing=[])
        self._reads = bool(looked)
        spare = {uid for uid, (_, config) in looked.items() if lends(config)}
        reading = self._kernel.containers([pod for pod, _ in looked.values()], now_ns, spare)
        before = self._buckets
        # A calm pod is skipped. Its tokens are counted once it is throttled.
        self._buckets = {key: bucket for key, bucket in before.items() if key[0] in reading.calm}
        held: dict[str, list[ContainerBurst]] = {uid: [] for uid in looked if uid not in reading.calm}
        for one in reading.containers:
            if one.quota_us != UNLIMITED_US:  # set by another program: the kubelet writes a quota for each limit
                key = (one.pod, one.container)
                burst, self._buckets[key] = self._step(one, looked[one.pod], before.get(key), now_ns)
                held[one.pod].append(burst)
        moving: list[ContainerBurst] = []
        for uid, bursts in held.items():
            pod, config = looked[uid]
            moving += movable(pod, bursts, config)
        return Seen(containers=moving, missing=reading.missing)

    def _step(
        self, one: ContainerCpu, looked: _Looked, before: _Bucket | None, now_ns: int
    ) -> tuple[ContainerBurst, _Bucket]:
        """Return the burst state of a container for the sample, and its bucket after the decision."""
        bucket, (pod, config) = before or _Bucket(None, now_ns), looked
        limiter, capacity = bucket.limiter, limiter_capacity(config)
        elapsed_s = (now_ns - bucket.counted_ns) // _SECOND_NS
        known = limiter is not None and limiter.capacity_tokens == capacity
        # A number in [0, 1) for each container, stable within a boot.
        text = f"{self._node}\x00{self._boot_id}\x00{one.pod}\x00{one.container}"
        draw = (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 11) / 2**53
        burst = ContainerBurst(
            pod=one.pod,
            container=one.container,
            quota_us=one.quota_us,
            pod_quota_us=one.pod_quota_us,
            throttled_ratio=(one.throttled_periods or 0) / one.periods if one.periods else None,
            used_milli=one.used_milli,
            tokens=None if limiter is None else limiter.tokens,
            capacity_tokens=None if limiter is None else limiter.capacity_tokens,
            start_tokens=0 if known or capacity is None else start_tokens(capacity, draw),
            elapsed_s=elapsed_s,
        )
        limit_milli = next(of.limits.cpu_milli or 0 for of in pod.containers if of.name == one.container)
        after = next_limiter(burst, limit_milli, config)
        return burst, _Bucket(after, bucket.counted_ns + elapsed_s * _SECOND_NS)


def _limited(pod: Pod) -> bool:
    return may_burst(pod) and any(one.limits.cpu_milli for one in pod.containers)
