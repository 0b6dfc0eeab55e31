"""One node's account: a sample covers the time since the previous one. Pure, in integers, so that sums are exact.

Kubernetes admits a pod if its requests fit into allocatable minus the other requests. docs/savings.md derives the three
figures.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod
from slacktide.schemas.knob import uid_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.suppress.cpu_suppress import AHEAD


@dataclass(slots=True)
class Summed:
    """Adds field by field; fields that end in ``_max`` keep the maximum."""

    def add(self, other: Any) -> None:
        """Add another one of the same type."""
        for one in fields(self):
            mine, its = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, Summed):
                mine.add(its)
            elif isinstance(mine, Counter):
                mine.update(its)
            else:
                setattr(self, one.name, max(mine, its) if one.name.endswith("_max") else mine + its)


@dataclass(slots=True)
class Use(Summed):
    """One resource: millicore-milliseconds, or byte-milliseconds."""

    used: int = 0
    admitted_least: int = 0
    admitted_likely: int = 0
    admitted_most: int = 0
    lost: int = 0
    """Use of pods until their eviction or restart, within the span."""
    room_left: int = 0
    """Room for native requests minus the requests of best-effort pods."""


@dataclass(slots=True)
class Level(Summed):
    """A pressure figure: hundredths of a percent, weighted by time."""

    weighted: int = 0
    time_ms: int = 0
    level_max: int = 0


@dataclass(slots=True)
class Harm(Summed):
    """The effect on latency-sensitive pods."""

    time_ms: int = 0
    ls_periods: int = 0
    ls_throttled: int = 0
    look_us: int = 0
    """Time with pressure measurements of latency-sensitive cgroups."""
    ls_stall_us: int = 0
    cpu_some: Level = field(default_factory=Level)
    mem_some: Level = field(default_factory=Level)
    mem_full: Level = field(default_factory=Level)
    io_some: Level = field(default_factory=Level)
    io_full: Level = field(default_factory=Level)


@dataclass(slots=True)
class Tally(Summed):
    """One node, or all."""

    samples: int = 0
    covered_ms: int = 0
    undecided: int = 0
    """Samples that were not counted: facts, pods or allocatable are unknown."""
    cpu: Use = field(default_factory=Use)
    mem: Use = field(default_factory=Use)
    evictions: int = 0
    restarts: int = 0
    busy: Harm = field(default_factory=Harm)
    """While best-effort pods ran."""
    idle: Harm = field(default_factory=Harm)
    """While they did not."""
    limit_ages_ms: Counter[int] = field(default_factory=Counter)
    """Ages from a sample to the resulting limit."""
    eviction_ages_ms: Counter[int] = field(default_factory=Counter)


CPU, MEM = 0, 1
BOTH = (CPU, MEM)


class Amounts(NamedTuple):
    """CPU in millicores, memory in bytes."""

    cpu_milli: int
    mem_bytes: int


NOTHING = Amounts(0, 0)


class Batch(NamedTuple):
    """One best-effort pod."""

    request: Amounts
    """The request in its own class of resources."""
    used: Amounts


class Admitted(NamedTuple):
    """Use that native requests would have admitted: ``least <= likely <= most <= used``."""

    least: Amounts
    likely: Amounts
    most: Amounts


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Return the sum per resource."""
    cpu_milli = mem_bytes = 0
    for cpu, mem in amounts:
        cpu_milli += cpu
        mem_bytes += mem
    return Amounts(cpu_milli, mem_bytes)


def admitted(pods: Sequence[Batch], room: Amounts) -> Admitted:
    """Split the use of a node's best-effort pods at one time. A pod without requests is always admitted.

    ``room``: allocatable minus the requests of all other pods; at least 0.
    """
    used, requested = total(pod.used for pod in pods), total(pod.request for pod in pods)
    short = [resource for resource in BOTH if requested[resource] > room[resource]]
    if not short:
        return Admitted(used, used, used)
    scarce = min(short, key=lambda resource: room[resource] / requested[resource])
    asking = [pod for pod in pods if any(pod.request)]
    free = total(pod.used for pod in pods if not any(pod.request))
    parts = []
    for of in BOTH:
        asked = sum(pod.used[of] for pod in asking)
        likely = asked * room[scarce] // requested[scarce]
        least = min(likely, _filled(asking, of, scarce, room[scarce], 1))
        # Pods without a request for a resource are free.
        more = {each: sum(pod.used[of] for pod in asking if not pod.request[each]) for each in short}
        most = max(likely, min(more[each] + _filled(asking, of, each, room[each], -1) for each in short))
        parts.append([free[of] + part for part in (least, likely, most)])
    return Admitted(*(Amounts(cpu, mem) for cpu, mem in zip(*parts, strict=True)))


def _filled(pods: Sequence[Batch], of: int, scarce: int, room: int, sign: int) -> int:
    """Fill the room with pods of the least (sign 1) or the most (-1) use per request; return their use.

    The last one fits in part, which bounds any packing of whole pods.
    """
    asking = [pod for pod in pods if pod.request[scarce]]
    used = 0
    for pod in sorted(asking, key=lambda pod: sign * pod.used[of] / pod.request[scarce]):
        request = pod.request[scarce]
        if request > room:
            return used + pod.used[of] * room // request
        used += pod.used[of]
        room -= request
    return used


INTERVAL_MS_MAX = 10_000
"""A sample covers at most this time."""
BUSY_PERMILLE = 10
"""Permille of allocatable CPU. From this use on, best-effort pods count as running."""
PRESSURES = ("cpu_some", "mem_some", "mem_full", "io_some", "io_full")


class Admission(NamedTuple):
    """Values that depend only on facts and pod list."""

    allocatable: Amounts
    room: Amounts
    requests: Mapping[str, Amounts]
    """The requests of best-effort pods, by uid."""
    listed: frozenset[str]
    requested: Amounts
    """Sum of ``requests``."""


class Admissions:
    """Keeps facts and pods of one node's keyframes, for samples that refer to them."""

    def __init__(self) -> None:
        self._facts: tuple[str, NodeFacts | None] = ("", None)
        self._pods: tuple[str, Sequence[Pod]] = ("", ())
        self._admission: tuple[tuple[str, str], Admission | None] = (("", ""), None)

    def see(self, sample: NodeSample) -> None:
        """Add a sample."""
        if sample.facts is not None:
            self._facts = sample.facts_revision, sample.facts
        if sample.pods is not None:
            self._pods = sample.pods_revision, sample.pods

    def of(self, sample: NodeSample) -> Admission | None:
        """Return the values for a sample; None: its facts or pods are unknown."""
        revisions = (sample.facts_revision, sample.pods_revision)
        if self._admission[0] != revisions or self._admission[1] is None:
            facts = self._facts[1] if self._facts[0] == revisions[0] else None
            known = facts is not None and self._pods[0] == revisions[1]
            self._admission = revisions, _admission(facts, self._pods[1]) if facts is not None and known else None
        return self._admission[1]


def best_effort_use(sample: NodeSample, admission: Admission) -> list[tuple[str, Batch]]:
    """Return the use of each best-effort pod, by uid."""
    requests, listed = admission.requests, admission.listed
    return [
        (use.uid, Batch(requests.get(use.uid, NOTHING), Amounts(use.cpu_milli or 0, use.mem_bytes or 0)))
        for use in sample.pod_use
        if use.uid in requests or (use.best_effort_group and use.uid not in listed)
    ]


class NodeAccount:
    """Accounts one node's samples and outcomes, in order."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._newest = ("", -1)
        self._admissions = Admissions()
        self._work = Work(self.tally)

    def sample(self, sample: NodeSample, *, counted: bool) -> None:
        """Add a sample. Duplicates change nothing; of one that is not ``counted`` only facts and pods are read."""
        if (sample.boot_id, sample.seq) <= self._newest:
            return
        self._newest = (sample.boot_id, sample.seq)
        self._admissions.see(sample)
        if sample.pods is not None:
            self._work.listed(sample.pods, counted=counted)
        if counted:
            self._count(sample)

    def outcome(self, outcome: NodeOutcome) -> None:
        """Add an outcome of the span: its latency, and lost work."""
        if outcome.result != "applied" or (outcome.origin == "agent" and outcome.rule != AHEAD):
            return
        if outcome.about_limit:
            self.tally.limit_ages_ms[outcome.age_ms] += 1
        elif outcome.knob is None and outcome.spent is not None and self._work.evicted(uid_of(outcome.target)):
            self.tally.eviction_ages_ms[outcome.age_ms] += 1

    def descheduled(self, uid: str) -> bool:
        """Mark the pod's work as lost; return whether it is one of this node's best-effort pods."""
        return self._work.knows(uid) and self._work.evicted(uid)

    def _count(self, sample: NodeSample) -> None:
        tally, span_ms = self.tally, min(sample.interval_ms, INTERVAL_MS_MAX)
        tally.samples += 1
        admission = self._admissions.of(sample)
        if admission is None:
            tally.undecided += 1
            return
        tally.covered_ms += span_ms
        best_effort = best_effort_use(sample, admission)
        pods = [pod for _, pod in best_effort]
        split = admitted(pods, admission.room)
        used = total(pod.used for pod in pods)
        for index, sums in enumerate((tally.cpu, tally.mem)):
            sums.used += used[index] * span_ms
            sums.admitted_least += split.least[index] * span_ms
            sums.admitted_likely += split.likely[index] * span_ms
            sums.admitted_most += split.most[index] * span_ms
            sums.room_left += max(0, admission.room[index] - admission.requested[index]) * span_ms
        for uid, pod in best_effort:
            self._work.used(uid, pod.used, span_ms)
        busy = used.cpu_milli * 1_000 >= admission.allocatable.cpu_milli * BUSY_PERMILLE
        _suffered(tally.busy if busy and used.cpu_milli else tally.idle, sample, {uid for uid, _ in best_effort})


def _admission(facts: NodeFacts, pods: Sequence[Pod]) -> Admission | None:
    cpu_milli, mem_bytes = facts.allocatable.cpu_milli, facts.allocatable.mem_bytes
    if cpu_milli is None or mem_bytes is None:
        return None
    live = [pod for pod in pods if pod.phase in LIVE_PHASES]
    native = [pod.requests for pod in live if not is_best_effort(pod)]
    taken = total(Amounts(one.cpu_milli or 0, one.mem_bytes or 0) for one in native)
    requests = {  # of a best-effort pod in its own class of resources
        pod.uid: Amounts(
            one.batch_cpu_milli or one.mid_cpu_milli or one.free_cpu_milli or one.cpu_milli or 0,
            one.batch_mem_bytes or one.mid_mem_bytes or one.free_mem_bytes or one.mem_bytes or 0,
        )
        for pod in live
        if is_best_effort(pod)
        for one in [pod.requests]
    }
    return Admission(
        allocatable=Amounts(cpu_milli, mem_bytes),
        room=Amounts(max(0, cpu_milli - taken.cpu_milli), max(0, mem_bytes - taken.mem_bytes)),
        requests=requests,
        listed=frozenset(pod.uid for pod in pods),
        requested=total(requests.values()),
    )


def _suffered(harm: Harm, sample: NodeSample, best_effort: set[str]) -> None:
    span_ms = min(sample.interval_ms, INTERVAL_MS_MAX)
    harm.time_ms += span_ms
    for use in sample.pod_use:
        if use.uid not in best_effort and not use.best_effort_group:
            harm.ls_periods += use.periods or 0
            harm.ls_throttled += use.throttled_periods or 0
    for look in sample.ls_pressure.looks if sample.ls_pressure else ():
        harm.look_us += look.span_us
        harm.ls_stall_us += look.cpu_stall_us
    for name in PRESSURES:
        percent = getattr(sample.use.pressure, f"{name}_pct")
        if percent is not None:
            level, hundredths = getattr(harm, name), round(percent * 100)
            level.weighted += hundredths * span_ms
            level.time_ms += span_ms
            level.level_max = max(level.level_max, hundredths)


class Work:
    """Adds lost work of best-effort pods to a tally: a pod's use before its eviction or restart.

    Work counts from the span's start. A pod may have saved some of it, which no record shows.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._done: dict[str, Amounts] = {}
        """Millicore- and byte-milliseconds since the pod's start, by uid."""
        self._containers: dict[str, Mapping[str, str]] = {}
        """Container ids of each best-effort pod."""
        self._evicted: set[str] = set()

    def used(self, uid: str, used: Amounts, span_ms: int) -> None:
        """Add a pod's use. The use of an evicted pod until its end is lost, too."""
        cpu_milli, mem_bytes = self._done.get(uid, NOTHING)
        self._done[uid] = Amounts(cpu_milli + used.cpu_milli * span_ms, mem_bytes + used.mem_bytes * span_ms)
        if uid in self._evicted:
            self._lose(self._done.pop(uid))

    def listed(self, pods: Sequence[Pod], *, counted: bool) -> None:
        """Add a pod list: finds restarted and deleted pods. It has no terminated pods."""
        best_effort = {pod.uid: pod for pod in pods if is_best_effort(pod)}
        for uid, pod in best_effort.items():
            before = self._containers.get(uid, {})
            now = {one.name: one.id or before.get(one.name, "") for one in pod.containers}
            restarted = any(before.get(name, id_) not in {"", id_} for name, id_ in now.items())
            self._containers[uid] = {**before, **now}
            if counted and restarted and uid not in self._evicted:
                self._tally.restarts += 1
                self._lose(self._done.pop(uid, NOTHING))
        for uid in self._containers.keys() - best_effort.keys():  # its eviction may be reported later
            del self._containers[uid]

    def knows(self, uid: str) -> bool:
        """Return whether the pod is known."""
        return uid in self._containers or uid in self._done

    def evicted(self, uid: str) -> bool:
        """Return whether this is the first report of the pod's eviction."""
        if uid in self._evicted:
            return False
        self._evicted.add(uid)
        self._tally.evictions += 1
        self._lose(self._done.pop(uid, NOTHING))
        return True

    def _lose(self, work: Amounts) -> None:
        self._tally.cpu.lost += work.cpu_milli
        self._tally.mem.lost += work.mem_bytes
