"""Runs cycles over all ClusterQueues, with pending workloads and those that hold quota.

Reading: kueue v0.19.2, pkg/scheduler/scheduler.go, pkg/cache/queue/manager.go; for progress,
pkg/scheduler/flavorassigner/flavorassigner.go (lastAssignmentOutdated).
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from slacktide.streams.decisions.queue.assign import Check, Cluster, Fungibility, Group, PodSet
from slacktide.streams.decisions.queue.cycle import Entry, Eviction, Head, cycle, evictions
from slacktide.streams.decisions.queue.flavor_match import NodeFlavor, Room
from slacktide.streams.decisions.queue.preempt import Holder, Preemption, remove, restore
from slacktide.streams.decisions.queue.preempt_fair import STRATEGIES, Strategy
from slacktide.streams.decisions.queue.queue_order import Pending, PendingQueue, QueueingStrategy, RequeuingTimestamp
from slacktide.streams.decisions.queue.quota_tree import QuotaNode, QuotaUsage


class ClusterQueue(NamedTuple):
    """A ClusterQueue with the inputs of its decisions."""

    node: QuotaNode
    groups: tuple[Group, ...] = ()
    fungibility: Fungibility = Fungibility()
    policies: Preemption = Preemption()
    strategy: QueueingStrategy = "BestEffortFIFO"
    checks: tuple[Check, ...] = ()


class Settings(NamedTuple):
    """Settings of all ClusterQueues."""

    flavors: Mapping[str, NodeFlavor] = {}
    fair_sharing: bool = False
    strategies: Sequence[Strategy] = STRATEGIES
    requeuing: RequeuingTimestamp = "Eviction"
    corrected: bool = False
    """Correct known errors of the reference; docs/queue-rules.md lists them."""
    block_admission: bool = False
    sizes: Mapping[str, Sequence[tuple[int, int]]] = {}
    """CPU in millicores and memory in bytes of each node, by flavor. Unknown flavors always have room."""


DEFAULTS = Settings()


class Workload(NamedTuple):
    """A pending workload."""

    pending: Pending
    queue: str
    pod_sets: tuple[PodSet, ...]

    @property
    def uid(self) -> str:
        """Return the workload's uid."""
        return self.pending.uid


class Cycle(NamedTuple):
    """The result of one cycle."""

    number: int
    entries: list[Entry]
    evictions: list[Eviction]
    tries_on: frozenset[str] = frozenset()
    """Uids of workloads whose next cycle may differ: it begins with another flavor."""


class _Progress(NamedTuple):
    tried: tuple[Mapping[str, int], ...]
    shape: Hashable
    cycle: int
    generation: int
    begun: int
    """Changes of held quota before the search began with the first flavor."""

    @property
    def pending(self) -> bool:
        """Return whether untried flavors remain."""
        return any(index != -1 for of_set in self.tried for index in of_set.values())


class Scheduling:
    """The state of the queue. Callers pass the time."""

    def __init__(
        self,
        queues: Iterable[ClusterQueue],
        holders: Iterable[Holder] = (),
        settings: Settings = DEFAULTS,
        known: Iterable[Workload] = (),
    ) -> None:
        self.settings = settings
        self.queues = {one.node.name: one for one in queues}
        self.waiting = {name: PendingQueue(one.strategy, settings.requeuing) for name, one in self.queues.items()}
        self.holders: dict[str, Holder] = {}
        self._held: dict[QuotaNode, dict[str, Holder]] = {}
        self.usage = QuotaUsage()
        self._room = Room(settings.sizes) if settings.sizes else None
        self.cycles_run = 0
        self.known = {one.uid: one for one in known}
        """Pending workloads, and known workloads that hold quota, by uid, until deletion."""
        self._progress: dict[str, _Progress] = {}
        self._chosen: dict[str, Mapping[str, str]] = {}
        self._waits_for_pods: set[str] = set()
        self._preempting: dict[str, set[str]] = {}
        """Preemptors by the workload that is to stop for them."""
        self.preempted: dict[str, dict[str, set[str]]] = {}
        """By the root of a tree: workloads that stopped for a preemptor since one last finished or shrank."""
        self._held_changes = 0
        """How often workloads took or gave back quota."""
        self._generations = dict.fromkeys(self.queues, 0)
        """By ClusterQueue; incremented when one of its workloads releases quota."""
        self._freed: set[QuotaNode] = set()
        """Roots of trees in which quota was released since the inadmissible workloads were activated."""
        for one in holders:
            self.hold(one)

    def push(self, one: Workload, now_s: int) -> None:
        """Add or update a workload."""
        self.known[one.uid] = one
        self.waiting[one.queue].push(one.pending, now_s)

    def delete(self, uid: str) -> None:
        """Delete a pending workload, or one that holds quota."""
        one = self.known.pop(uid, None)
        self._progress.pop(uid, None)
        self._chosen.pop(uid, None)
        if one is not None:
            self.waiting[one.queue].delete(uid)
        if uid in self.holders:
            self._preempting.pop(uid, None)
            self.preempted.pop(self.holders[uid].queue.root().name, None)
        self.release(uid)

    def release(self, uid: str) -> None:
        """Release the quota of a workload. ``retry`` activates the inadmissible workloads that may need it."""
        holder = self.holders.pop(uid, None)
        self._waits_for_pods.discard(uid)
        if holder is None:
            return
        self._held_changes += 1
        for preemptor in self._preempting.pop(uid, ()):
            self.preempted.setdefault(holder.queue.root().name, {}).setdefault(preemptor, set()).add(uid)
        del self._held[holder.queue][uid]
        remove(self.usage, holder)
        if self._room is not None:
            self._room.give(uid)
        self._note_freed(holder)

    def hold(self, one: Holder) -> None:
        """Book or update the quota of a workload."""
        uid, before = one.queued.uid, self.holders.get(one.queued.uid)
        if before is None:
            self._waits_for_pods.add(uid)
        else:
            del self._held[before.queue][uid]
            remove(self.usage, before)
        self._held_changes += before is None or before.usage != one.usage
        self.holders[uid] = one
        self._held.setdefault(one.queue, {})[uid] = one
        restore(self.usage, one)
        if self._room is not None and (before is None or before.pods != one.pods):
            self._room.take(uid, one.pods)
        if before is not None and before.usage != one.usage:
            self.preempted.pop(one.queue.root().name, None)
            self._note_freed(before)

    def _note_freed(self, holder: Holder) -> None:
        self._generations[holder.queue.name] += 1
        self._freed.add(holder.queue.root())

    def retry(self, now_s: int) -> bool:
        """Activate the inadmissible workloads of trees in which quota was released; return whether there are any.

        The reference does so a second after the release. A victim that is pending again, and heads that stay active,
        come before them.
        """
        freed, self._freed = self._freed, set()
        every = self._room is not None and bool(freed)
        due = [name for name, one in self.queues.items() if every or one.node.root() in freed]
        return sum(self.waiting[name].retry(now_s) for name in due) > 0

    def pods_ready(self, uid: str, *, ready: bool = True) -> None:
        """Record whether the pods of a workload that holds quota are ready."""
        if ready:
            self._waits_for_pods.discard(uid)
        elif uid in self.holders:
            self._waits_for_pods.add(uid)

    def stops_for(self, uid: str, preemptor: str) -> None:
        """Record that a workload that holds quota is to stop for another one."""
        self._preempting.setdefault(uid, set()).add(preemptor)

    @property
    def standing(self) -> Hashable:
        """Return a key of what the next decisions depend on, except the times."""
        times = sorted({one.reserved_at_s or 0 for one in self.holders.values()})
        rank = {at_s: at for at, at_s in enumerate(times)}
        return (
            frozenset(
                (uid, rank[one.reserved_at_s or 0], *sorted(one.usage.items())) for uid, one in self.holders.items()
            ),
            tuple(
                (tuple(one.uid for one in queue.active), frozenset(one.uid for one in queue.inadmissible))
                for queue in self.waiting.values()
            ),
            frozenset((uid, *(tuple(each.items()) for each in one.tried)) for uid, one in self._progress.items()),
            frozenset((uid, *one.items()) for uid, one in self._chosen.items()),
        )

    def cycles(self, now_s: int) -> Iterator[Cycle]:
        """Run cycles until one admits nothing, so that a ClusterQueue can admit several workloads between events."""
        while (done := self.cycle(now_s)).entries:
            yield done
            if all(one.status != "assumed" for one in done.entries):
                return

    def cycle(self, now_s: int) -> Cycle:
        """Try the head of each ClusterQueue; return no entries if none may be tried."""
        self.cycles_run += 1
        popped = [self.known[one.uid] for queue in self.waiting.values() if (one := queue.pop()) is not None]
        heads, changes = [self._head(one, now_s) for one in popped], self._held_changes
        most = int(not self._waits_for_pods) if self.settings.block_admission else None
        entries = cycle(heads, self.usage, self.settings.requeuing, most)
        done = Cycle(self.cycles_run, entries, list(evictions(entries, self.usage, self.cycles_run)))
        for eviction in done.evictions:
            self.stops_for(eviction.victim.uid, eviction.preemptor.uid)
        tries_on = [entry.head.queued.uid for entry in entries if self._carry_out(entry, now_s, changes)]
        return done._replace(tries_on=frozenset(tries_on))

    def _head(self, one: Workload, now_s: int) -> Head:
        progress = self._progress.get(one.uid)
        if progress is not None and not one.pending.barred:
            recent = self.cycles_run - progress.cycle <= 1 or self._generations[one.queue] <= progress.generation
            if progress.shape != one.pending.shape or not recent:  # or older than the last release of quota
                del self._progress[one.uid]
                progress = None
        tried = [*(progress.tried if progress else ()), *({} for _ in one.pod_sets)]
        pod_sets = [each._replace(last_tried=tried[at]) for at, each in enumerate(one.pod_sets)]
        before = self.preempted.get(self.queues[one.queue].node.root().name, {}).get(one.uid, ())
        cluster = self.cluster(one.queue, now_s)._replace(
            chosen_before=self._chosen.get(one.uid, {}), preempted_before=frozenset(before)
        )
        return Head(one.pending.queued, cluster, pod_sets, one.pending.barred, progress is not None)

    def cluster(self, name: str, now_s: int) -> Cluster:
        """Return the current inputs of flavor assignments in a ClusterQueue."""
        queue, settings = self.queues[name], self.settings
        return Cluster(
            queue=queue.node,
            groups=queue.groups,
            flavors=settings.flavors,
            fungibility=queue.fungibility,
            policies=queue.policies,
            checks=queue.checks,
            holders={node: held.values() for node, held in self._held.items()},
            usage=self.usage,
            fair_sharing=settings.fair_sharing,
            strategies=settings.strategies,
            now_s=now_s,
            requeuing=settings.requeuing,
            corrected=settings.corrected,
            room=self._room,
            compares=False,
        )

    def _carry_out(self, entry: Entry, now_s: int, changes: int) -> bool:
        """Book an admitted workload, requeue any other; return whether its next cycle begins with another flavor.

        ``changes``: of held quota before the cycle. In the reference, a search that went on behind the flavors of an
        earlier cycle and finds nothing waits for the next event. Corrected, it begins anew if quota changed meanwhile.
        """
        uid, done = entry.head.queued.uid, entry.assignment
        one = self.known[uid]
        if done is not None and entry.status == "assumed":
            self.waiting[one.queue].delete(uid)
            self._progress.pop(uid, None)
            self._chosen.pop(uid, None)
            usage, queued = done.usage(), entry.head.queued
            if queued.evicted is not None:
                queued = queued._replace(evicted=queued.evicted._replace(status=False))
            pods = done.groups() if self._room is not None else ()
            self.hold(Holder(queued, entry.head.cluster.queue, frozenset(usage), usage, now_s, pods))
            return False
        before = self._progress.get(uid)
        begun = before.begun if before is not None and before.pending else changes
        anew = self.settings.corrected and done is not None and not done.works and begun != changes
        if done is not None:
            self._chosen[uid] = {one.holder.queued.uid: one.reason for one in done.targets}
        if entry.evicts or anew:
            self._progress.pop(uid, None)
        elif done is not None:
            tried = tuple({key: each.tried_index for key, each in one.flavors.items()} for one in done.pod_sets)
            generation = self._generations[one.queue]
            self._progress[uid] = _Progress(tried, one.pending.shape, self.cycles_run, generation, begun)
        progress = self._progress.get(uid)
        pending_flavors = anew or (progress is not None and progress.pending)
        self.waiting[one.queue].requeue(one.pending, entry.requeue_reason, now_s, pending_flavors=pending_flavors)
        return anew or (done is not None and not entry.evicts and done.pending_flavors)
