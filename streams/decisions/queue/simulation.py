"""Simulates a queue: jobs arrive, are admitted, preempt one another and finish.

It folds jobs with the rules of the queue and reads no clock. The pods of an evicted workload stop within a second: then
it releases its quota and is requeued, as one event. It starts from the beginning, so its work is lost.
"""

import heapq
from collections import Counter, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.cycle import Entry, Eviction
from slacktide.streams.decisions.queue.missing import WINDOW_S, Missing, Wait, missing, wait
from slacktide.streams.decisions.queue.queue_order import Condition, place
from slacktide.streams.decisions.queue.quota_tree import FlavorResource
from slacktide.streams.decisions.queue.scheduling import Scheduling, Workload

STOP_S = 1
"""How long the pods of an evicted workload take to stop."""
CYCLES_MAX = 1_000_000
"""Maximum number of cycles."""
REPEATS_MAX = 1_000
"""How often jobs may preempt one another in the same way, while an arrival or end to come might change that."""
Kind = Literal["arrived", "admitted", "evicted", "finished", "repeats"]
State = Literal["running", "waiting", "finished"]
STATES: tuple[State, ...] = ("running", "waiting", "finished")


class Arrival(NamedTuple):
    """The arrival of a job at its queue."""

    at_s: int
    workload: Workload


Due = tuple[int, bool, str, int, Workload | None]
"""Time, whether it arrives or returns, uid, number of its run, and workload."""


class Happened(NamedTuple):
    """One event of a simulation. ``repeats``: this eviction was there before, and the state is the same."""

    at_s: int
    kind: Kind
    uid: str
    queue: str
    usage: Mapping[FlavorResource, int] = {}
    eviction: Eviction | None = None
    reason: str = ""
    """Of an eviction without a preemptor."""


class Outcome(NamedTuple):
    """The state of a workload at the end."""

    uid: str
    queue: str
    state: State
    admitted_at_s: int | None
    evicted_count: int
    lost_core_s: float
    """Reserved CPU time of runs that an eviction ended."""
    entry: Entry | None
    position: int = 0
    """In its ClusterQueue; 1: it is next. 0: it is not pending."""
    wait: Wait | None = None
    missing: Missing | None = None


class _Run(NamedTuple):
    """A workload that holds quota."""

    since_s: int
    number: int


class Simulation:
    """Simulates the queue, and changes ``state``.

    ``run_s``: run times by uid; without one, a workload does not end. One that holds quota at the start counts from its
    admission. ``now_s``: the start. ``drained``: reasons of workloads whose quota is taken at the start, by uid.
    """

    def __init__(
        self, state: Scheduling, run_s: Mapping[str, int], now_s: int, drained: Mapping[str, str] | None = None
    ) -> None:
        self.state, self.now_s = state, now_s
        self.unfinished = False
        """It stopped because jobs preempt one another without end."""
        self._run_s = run_s
        self._drained = drained or {}
        self.repeats: Eviction | None = None
        """If so: one of a pair that preempts each other."""
        self._todo: list[Due] = []
        self._since: list[Eviction] = []
        """Evictions since a workload last arrived or finished."""
        self._evicted_before = 0
        """How many of them the last state had."""
        self._seen: Counter[Hashable] = Counter()
        """States since then, with and without the times of what is to come."""
        self._runs: dict[str, _Run] = {}
        self._queue_of = {uid: one.queue.name for uid, one in state.holders.items()}
        self._stopping: dict[str, int] = {}
        """By uid of a workload that is evicted and still holds quota, the number of its run."""
        self._evicted: dict[str, int] = {}
        self._lost: dict[str, float] = {}
        self._done: dict[str, int] = {}
        self._entries: dict[str, Entry] = {}
        self._admissions: dict[str, deque[int]] = {name: deque() for name in state.queues}
        for uid, holder in state.holders.items():
            self._start(uid, holder.queue.name, now_s if holder.reserved_at_s is None else holder.reserved_at_s)
        for name, queue in state.waiting.items():
            self._queue_of |= {one.uid: name for one in (*queue.active, *queue.inadmissible)}
            for one in queue.inadmissible:
                if one.requeue_at_s is not None and one.requeue_at_s > now_s:
                    back = one._replace(requeued=None, requeue_at_s=None)
                    self._later(one.requeue_at_s, one.uid, 1, state.known[one.uid]._replace(pending=back))

    def run(self, arrivals: Iterable[Arrival], until_s: int | None = None) -> Iterator[Happened]:
        """Yield events in order, until none is left or the time is over."""
        for one in arrivals:
            self._queue_of[one.workload.uid] = one.workload.queue
            self._later(max(one.at_s, self.now_s), one.workload.uid, 0, one.workload)
        for uid in sorted(self._drained.keys() & self.state.holders.keys()):
            queue, reason = self._queue_of[uid], self._drained[uid]
            self._evict(uid, reason)
            yield Happened(self.now_s, "evicted", uid, queue, reason=reason)
        yield from self._decide()
        while self._todo and not self.unfinished and (until_s is None or self._todo[0][0] <= until_s):
            due = [heapq.heappop(self._todo)]
            while self._todo and self._todo[0][0] == due[0][0]:
                due.append(heapq.heappop(self._todo))
            if self._repeated(due):
                break
            self.now_s = due[0][0]
            for _, _, uid, number, workload in due:
                yield from self._next(uid, number, workload)
            yield from self._decide()
        if (again := self.repeats) is not None:
            yield Happened(self.now_s, "repeats", again.victim.uid, again.victim.queue, eviction=again)
        elif until_s is not None:
            self.now_s = max(self.now_s, until_s)

    def _repeated(self, due: Sequence[Due]) -> bool:
        """Return whether the state has been there before, with an eviction since; nothing arrives or finishes."""
        if any(self._is_progress(one) for one in due):
            self._since, self._evicted_before, self._seen = [], 0, Counter()
            return False
        if len(self._since) == self._evicted_before:
            return False
        self._evicted_before = len(self._since)
        state, now_s = self.state.standing, due[0][0]
        to_come = [one for one in self._todo if one[1] or self._is_progress(one)]
        coming = frozenset((one[0] - now_s, *one[1:3], bool(one[3])) for one in to_come)
        self._seen.update((state, (state, coming)))
        if self._seen[state, coming] > 1 or self._seen[state] > REPEATS_MAX:
            self.unfinished = True
            pairs = {(one.victim.uid, one.preemptor.uid) for one in self._since}
            mutual = [one for one in self._since if (one.preemptor.uid, one.victim.uid) in pairs]
            self.repeats = (mutual or self._since)[-1]
        return self.unfinished

    def _is_progress(self, one: Due) -> bool:
        """Return whether a workload arrives or finishes: it was not evicted meanwhile."""
        _, comes, uid, number, _ = one
        return not number if comes else uid in self._runs and self._runs[uid].number == number

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of every workload, by ClusterQueue: those that hold quota, are pending and finished."""
        found = [self._outcome(uid, queue) for uid, queue in self._queue_of.items()]
        return sorted(found, key=lambda one: (one.queue, STATES.index(one.state), one.position, one.uid))

    def _next(self, uid: str, number: int, workload: Workload | None) -> Iterator[Happened]:
        if number and self._stopping.get(uid) == number:
            del self._stopping[uid]
            self.state.release(uid)
        if workload is not None:
            self.state.push(workload, self.now_s)
            if not number:
                yield Happened(self.now_s, "arrived", uid, workload.queue)
        elif (run := self._runs.get(uid)) is not None and run.number == number:
            del self._runs[uid]
            self._done[uid] = run.since_s
            self.state.delete(uid)
            yield Happened(self.now_s, "finished", uid, self._queue_of[uid])

    def _decide(self) -> Iterator[Happened]:
        """Run cycles until the next one would be equal."""
        goes_on = True
        while goes_on and not self.unfinished:
            done = self.state.cycle(self.now_s)
            new = [one for one in done.evictions if one.victim.uid in self._runs]  # others already stop
            # An entry's next cycle differs if it tries another flavor, is set aside, or holds quota.
            differs = bool(new) or any(
                one.head.queued.uid in done.tries_on
                or not self.state.waiting[one.head.cluster.queue.name].is_active(one.head.queued.uid)
                for one in done.entries
            )
            goes_on = differs or self.state.retry(self.now_s)
            self.unfinished = done.number >= CYCLES_MAX
            for entry in done.entries:
                uid, queue = entry.head.queued.uid, entry.head.cluster.queue.name
                self._entries[uid] = entry
                if entry.status == "assumed" and entry.assignment is not None:
                    self._start(uid, queue, self.now_s)
                    yield Happened(self.now_s, "admitted", uid, queue, entry.assignment.usage())
            for eviction in new:
                victim = eviction.victim
                self._evict(victim.uid)
                self._since.append(eviction)
                yield Happened(self.now_s, "evicted", victim.uid, victim.queue, eviction=eviction)

    def _start(self, uid: str, queue: str, at_s: int) -> None:
        number = self._evicted.get(uid, 0) + 1
        self._runs[uid] = _Run(at_s, number)
        self._admissions[queue].append(at_s)
        if uid in self._run_s:
            self._later(max(self.now_s, at_s + self._run_s[uid]), uid, number, None)

    def _evict(self, uid: str, reason: str = "Preempted") -> None:
        run, holder = self._runs.pop(uid), self.state.holders[uid]
        cpu_milli = sum(amount for of, amount in holder.usage.items() if of.resource == "cpu")
        self._lost[uid] = self._lost.get(uid, 0.0) + cpu_milli / 1000 * (self.now_s - run.since_s)
        self._evicted[uid] = self._evicted.get(uid, 0) + 1
        self._stopping[uid] = run.number
        evicted = Condition(reason, self.now_s)
        self.state.hold(holder._replace(queued=holder.queued._replace(evicted=evicted)))
        again = self.state.known.get(uid)
        if again is not None:
            queued = again.pending.queued._replace(evicted=evicted)
            again = again._replace(pending=again.pending._replace(queued=queued))
        self._later(self.now_s + STOP_S, uid, run.number, again)

    def _later(self, at_s: int, uid: str, number: int, workload: Workload | None) -> None:
        """Schedule an event. At the same time, ends come before arrivals."""
        heapq.heappush(self._todo, (at_s, workload is not None, uid, number, workload))

    def _outcome(self, uid: str, queue: str) -> Outcome:
        run = self._runs.get(uid)
        state: State = "finished" if uid in self._done else "running" if run is not None else "waiting"
        entry = self._entries.get(uid)
        outcome = Outcome(
            uid,
            queue,
            state,
            run.since_s if run is not None else self._done.get(uid),
            self._evicted.get(uid, 0),
            self._lost.get(uid, 0.0),
            entry,
        )
        workload = self.state.known.get(uid)
        if state != "waiting" or workload is None:
            return outcome
        pending = self.state.waiting[queue]
        aside = pending.inadmissible
        both = sorted((*pending.active, *aside), key=lambda each: place(each.queued, self.state.settings.requeuing))
        order = [each.uid for each in both]
        if uid not in order:
            return outcome
        recent = sum(1 for at_s in self._admissions[queue] if self.now_s - WINDOW_S < at_s <= self.now_s)
        blocked_by = ""
        if uid in {each.uid for each in aside}:
            blocked_by = entry.requeue_reason if entry else "its shape does not fit"
        position = order.index(uid) + 1
        return outcome._replace(
            position=position,
            wait=wait(position, recent, blocked_by=blocked_by),
            missing=missing(workload.pod_sets, self.state.cluster(queue, self.now_s)),
        )
