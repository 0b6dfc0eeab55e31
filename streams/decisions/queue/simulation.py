"""Simulates a queue: jobs arrive, are admitted, preempt one another and finish.

It folds jobs with the rules of the queue and reads no clock. An evicted workload releases its quota immediately. It is
requeued a second later and starts from the beginning, so its work is lost.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from slacktide.streams.decisions.queue.cycle import Entry, Eviction
from slacktide.streams.decisions.queue.missing import WINDOW_S, Missing, Wait, missing, wait
from slacktide.streams.decisions.queue.queue_order import Condition, place
from slacktide.streams.decisions.queue.quota_tree import FlavorResource
from slacktide.streams.decisions.queue.scheduling import Cycle, Scheduling, Workload

REQUEUE_S = 1
"""Delay before an evicted workload is tried again."""
CYCLES_MAX = 1_000_000
"""Maximum number of cycles, since some jobs preempt one another without end."""
Kind = Literal["arrived", "admitted", "evicted", "finished"]
State = Literal["running", "waiting", "finished"]
STATES: tuple[State, ...] = ("running", "waiting", "finished")


class Arrival(NamedTuple):
    """The arrival of a job at its queue."""

    at_s: int
    workload: Workload


class Happened(NamedTuple):
    """One event of a simulation."""

    at_s: int
    kind: Kind
    uid: str
    queue: str
    usage: Mapping[FlavorResource, int] = {}
    eviction: Eviction | None = None


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
    admission. ``now_s``: the start.
    """

    def __init__(self, state: Scheduling, run_s: Mapping[str, int], now_s: int) -> None:
        self.state, self.now_s = state, now_s
        self.unfinished = False
        """It stopped because jobs preempt one another without end."""
        self._run_s = run_s
        self._todo: list[tuple[int, bool, str, int, Workload | None]] = []
        self._runs: dict[str, _Run] = {}
        self._queue_of = {uid: one.queue.name for uid, one in state.holders.items()}
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
        yield from self._decide()
        while self._todo and not self.unfinished and (until_s is None or self._todo[0][0] <= until_s):
            self.now_s = self._todo[0][0]
            while self._todo and self._todo[0][0] == self.now_s:
                _, _, uid, number, workload = heapq.heappop(self._todo)
                yield from self._next(uid, number, workload)
            yield from self._decide()
        if until_s is not None:
            self.now_s = max(self.now_s, until_s)

    def outcomes(self) -> list[Outcome]:
        """Return the outcome of every workload, by ClusterQueue: those that hold quota, are pending and finished."""
        found = [self._outcome(uid, queue) for uid, queue in self._queue_of.items()]
        return sorted(found, key=lambda one: (one.queue, STATES.index(one.state), one.position, one.uid))

    def _next(self, uid: str, number: int, workload: Workload | None) -> Iterator[Happened]:
        if workload is not None:
            self.state.push(workload, self.now_s)
            if not number:
                yield Happened(self.now_s, "arrived", uid, workload.queue)
        elif (run := self._runs.get(uid)) is not None and run.number == number:
            del self._runs[uid]
            self._done[uid] = run.since_s
            self.state.delete(uid, self.now_s)
            yield Happened(self.now_s, "finished", uid, self._queue_of[uid])

    def _decide(self) -> Iterator[Happened]:
        """Run cycles until the next one would be equal."""
        goes_on = True
        while goes_on and not self.unfinished:
            done = self.state.cycle(self.now_s)
            goes_on = any(self._changes(one) for one in done.entries)
            self.unfinished = done.number >= CYCLES_MAX
            yield from self._carried_out(done)

    def _changes(self, one: Entry) -> bool:
        """Return whether its next cycle differs: it evicts, tries another flavor, is set aside, or holds quota."""
        if one.evicts or (one.assignment is not None and one.assignment.pending_flavors):
            return True
        return not self.state.waiting[one.head.cluster.queue.name].is_active(one.head.queued.uid)

    def _carried_out(self, done: Cycle) -> Iterator[Happened]:
        for entry in done.entries:
            uid, queue = entry.head.queued.uid, entry.head.cluster.queue.name
            self._entries[uid] = entry
            if entry.status == "assumed" and entry.assignment is not None:
                self._start(uid, queue, self.now_s)
                yield Happened(self.now_s, "admitted", uid, queue, entry.assignment.usage())
        for one in done.evictions:
            self._evict(one)
            yield Happened(self.now_s, "evicted", one.victim.uid, one.victim.queue, eviction=one)

    def _start(self, uid: str, queue: str, at_s: int) -> None:
        number = self._evicted.get(uid, 0) + 1
        self._runs[uid] = _Run(at_s, number)
        self._admissions[queue].append(at_s)
        if uid in self._run_s:
            self._later(max(self.now_s, at_s + self._run_s[uid]), uid, number, None)

    def _evict(self, one: Eviction) -> None:
        uid = one.victim.uid
        run, holder = self._runs.pop(uid), self.state.holders[uid]
        cpu_milli = sum(amount for of, amount in holder.usage.items() if of.resource == "cpu")
        self._lost[uid] = self._lost.get(uid, 0.0) + cpu_milli / 1000 * (self.now_s - run.since_s)
        self._evicted[uid] = self._evicted.get(uid, 0) + 1
        self.state.release(uid, self.now_s)
        workload = self.state.known.get(uid)
        if workload is not None:
            queued = workload.pending.queued._replace(evicted=Condition("Preempted", self.now_s))
            again = workload._replace(pending=workload.pending._replace(queued=queued))
            self._later(self.now_s + REQUEUE_S, uid, run.number, again)

    def _later(self, at_s: int, uid: str, number: int, workload: Workload | None) -> None:
        """Schedule an event. At the same time, ends come before arrivals."""
        heapq.heappush(self._todo, (at_s, workload is not None, uid, number, workload))

    def _outcome(self, uid: str, queue: str) -> Outcome:
        run = self._runs.get(uid)
        state: State = "finished" if uid in self._done else "running" if run is not None else "waiting"
        plain = Outcome(
            uid,
            queue,
            state,
            run.since_s if run is not None else self._done.get(uid),
            self._evicted.get(uid, 0),
            self._lost.get(uid, 0.0),
            self._entries.get(uid),
        )
        return self._waiting(plain) if state == "waiting" else plain

    def _waiting(self, one: Outcome) -> Outcome:
        queue = self.state.waiting[one.queue]
        aside = queue.inadmissible
        both = sorted((*queue.active, *aside), key=lambda each: place(each.queued, self.state.settings.requeuing))
        order = [each.uid for each in both]
        workload = self.state.known.get(one.uid)
        if workload is None or one.uid not in order:
            return one
        recent = sum(1 for at_s in self._admissions[one.queue] if self.now_s - WINDOW_S < at_s <= self.now_s)
        entry = one.entry
        blocked = (
            (entry.requeue_reason if entry else "its shape does not fit")
            if one.uid in {each.uid for each in aside}
            else ""
        )
        position = order.index(one.uid) + 1
        return one._replace(
            position=position,
            wait=wait(position, recent, blocked_by=blocked),
            missing=missing(workload.pod_sets, self.state.cluster(one.queue, self.now_s)),
        )
