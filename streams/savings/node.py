"""One node's account: a sample covers the time since the previous one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slacktide.schemas.inventory import LIVE_PHASES, NodeFacts, Pod, Resources
from slacktide.schemas.knob import uid_of
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import NodeSample
from slacktide.streams.savings.admission import NOTHING, Amounts, Batch, admitted, total
from slacktide.streams.savings.tally import Harm, Tally

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
        """Add a sample. Duplicates change nothing.

        Args:
            sample: to add.
            counted: False: it precedes the span, and only its facts and pods are read.
        """
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
        if outcome.result != "applied" or outcome.origin == "agent":
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
    requests = {pod.uid: _requested(pod.requests) for pod in live if is_best_effort(pod)}
    return Admission(
        allocatable=Amounts(cpu_milli, mem_bytes),
        room=Amounts(max(0, cpu_milli - taken.cpu_milli), max(0, mem_bytes - taken.mem_bytes)),
        requests=requests,
        listed=frozenset(pod.uid for pod in pods),
        requested=total(requests.values()),
    )


def _requested(amounts: Resources) -> Amounts:
    """Return a best-effort pod's requests, in its own class of resources."""
    return Amounts(
        amounts.batch_cpu_milli or amounts.mid_cpu_milli or amounts.free_cpu_milli or amounts.cpu_milli or 0,
        amounts.batch_mem_bytes or amounts.mid_mem_bytes or amounts.free_mem_bytes or amounts.mem_bytes or 0,
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
