"""One term of the decider: each turn reads records, runs scheduling cycles and makes one decision."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from slacktide.schemas.codec import encode
from slacktide.schemas.errors import failure
from slacktide.schemas.queue import (
    REQUEUING_LIMIT,
    Phase,
    PodsReadySettings,
    QueueBooking,
    QueueDecision,
    QueueEviction,
    QueuePodSet,
    QueueRead,
    QueueState,
)
from slacktide.schemas.queue_objects import QueueObject
from slacktide.schemas.topics import QUEUE_DECISION, QUEUE_STATE
from slacktide.streams.decisions.queue.cycle import Entry
from slacktide.streams.decisions.queue.preempt import excess
from slacktide.streams.decisions.queue.queue_order import PREEMPTION_REPEATS
from slacktide.streams.decisions.queue.scheduling import Cycle
from slacktide.streams.decisions.queue.workload_objects import Wanted, admitted_sets, wanted
from slacktide.streams.queue.cluster import Specs, View, action, evicted, eviction_record, pod_sets_of, ready_reason
from slacktide.streams.queue.ledger import Inputs, Ledger, last_of_each, outcome_of, read_up_to, workload_of
from slacktide.streams.records import Out, Record, dead_letter, of_queue, text_of

CHANGES_MAX = 500
"""Approximate limit per turn: a decision of some 300 KiB. The rest follows in the next turn."""
CYCLES_MAX = 1_000
RETRY_MS = 5_000
NOT_STARTED = "FailedAfterNomination"
DEACTIVATED = "Deactivated"
SHRANK = "QuotaShrank"
ADOPTED = "Adopted"
"""Reason: the workload held quota before Slacktide decided on it."""


class Exceeding(NamedTuple):
    """A workload that must stop since a quota shrank."""

    uid: str
    namespace: str
    name: str


class Turn(NamedTuple):
    """The result of a turn."""

    decision: QueueDecision
    dead_letters: list[Out]
    stopped: list[Exceeding]
    repeats: list[tuple[str, str]]
    """Uids of a workload that waits, because it would preempt another one again without end, and of that."""


class Decider:
    """One term, which owns ``ledger``. After a failed write its state is ahead of Kafka: begin another term."""

    def __init__(
        self, process: str, ledger: Ledger, *, fair_sharing: bool = False, pods_ready: PodsReadySettings | None = None
    ) -> None:
        self.ledger = ledger
        self.goes_on = False
        """Whether the last turn reached a limit and another is due immediately."""
        self.changed: set[str] = set()
        """Uids whose states this term has not published yet."""
        self._process, self._fair_sharing, self._pods_ready = process, fair_sharing, pods_ready
        self._specs = Specs()
        self._wanted: dict[str, Wanted] = {}
        self._unreadable: set[str] = set()
        self._vanished: list[str] | None = None
        """Uids in the ledger without a workload record; None: not known yet."""
        self._retries: dict[str, int] = {}
        self.exceeding: list[Exceeding] = []
        """Workloads that stop next, in order, once there is eviction credit."""
        self._shrank = True
        self._draining: list[str] = []
        """Uids whose queues may have been stopped."""
        self._timeouts: dict[str, int] = {}
        self._view = View(
            self._specs,
            self._wanted,
            ledger.states,
            fair_sharing=fair_sharing,
            block_admission=pods_ready is not None and pods_ready.block_admission,
        )
        self._now_ms = 0
        self._changes: dict[str, QueueState] = {}
        self._dead_letters: list[Out] = []
        self._repeats: list[tuple[str, str]] = []

    def begin(self, epoch: int, now_ms: int) -> QueueDecision:
        """Return the decision that begins the term. It counts if it is the first of its epoch."""
        ledger = self.ledger
        now_ms = max(now_ms, ledger.decided_ms)
        return self._decided(
            QueueDecision(
                epoch=epoch,
                turn=0,
                process=self._process,
                decided_ms=now_ms,
                read=QueueRead(spec=0, workload=0, outcome=ledger.read.outcome),
                fair_sharing=self._fair_sharing,
                pods_ready=self._pods_ready,
            )
        )

    @property
    def objects(self) -> list[QueueObject]:
        """Return all queue objects without workloads."""
        return self._specs.objects

    @property
    def due_ms(self) -> int | None:
        """Return when a turn is due without new records; None: never."""
        return 0 if self.goes_on else min((*self._retries.values(), *self._timeouts.values()), default=None)

    def turn(self, inputs: Inputs, now_ms: int, allowed: Sequence[str] = ()) -> Turn:
        """Read records and decide; the first turn needs all specs and workloads.

        ``allowed``: uids above quota that have eviction credit.
        """
        ledger = self.ledger
        self._now_ms = max(now_ms, ledger.decided_ms)
        self._changes, self._dead_letters, self._repeats = {}, [], []
        read = read_up_to(inputs, ledger.read)
        version = self._specs.version
        for record, why in self._specs.take(inputs.specs):  # all: the last valid one of each counts
            self._dead(record, why)
        touched = [self._each(record, self._workload) for record in last_of_each(inputs.workloads)]
        if self._vanished is None or self._specs.version > version:
            self._forget_vanished()
            self._view.rebuild(self._now_ms)
            self._shrank = True
            self._draining = sorted(self.ledger.states)
        else:
            for uid in touched:
                self._view.sync(uid, self._now_ms)
            self._draining += touched
        for record in inputs.outcomes:
            self._each(record, self._outcome)
        self._forget_vanished()
        for uid in sorted(uid for uid, at_ms in self._retries.items() if at_ms <= self._now_ms):
            del self._retries[uid]
            self._view.sync(uid, self._now_ms)
        self._evict_unready()
        self._drain()
        stopped = [one for one in self._exceeding() if one.uid in allowed] if allowed else []
        for one in stopped:
            self._evict(one.uid, SHRANK, SHRANK)
        tried, evictions = self._cycles()
        decision = QueueDecision(
            epoch=ledger.epoch,
            turn=ledger.turn + 1,
            process=self._process,
            decided_ms=self._now_ms,
            read=read,
            fair_sharing=self._fair_sharing,
            pods_ready=self._pods_ready,
            allowed=list(allowed),
            tried=tried,
            changes=list(self._changes.values()),
            evictions=evictions,
        )
        self.exceeding = self._exceeding() if self._shrank else []
        self._shrank = bool(self.exceeding)
        return Turn(self._decided(decision), self._dead_letters, stopped, self._repeats)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of pending workloads and of those that hold quota, by ClusterQueue."""
        holders = Counter(one.queue.name for one in self._view.scheduling.holders.values())
        return {name: (len(queue), holders[name]) for name, queue in self._view.scheduling.waiting.items()}

    def written(self, uid: str) -> Out:
        """Return the record of a workload's current state."""
        state = self.ledger.states.get(uid)
        stamp = f"{self.ledger.epoch}/{self.ledger.turn}"
        return self._out(QUEUE_STATE.name, uid, None if state is None else encode(state), stamp, self._now_ms)

    def decision_out(self, one: QueueDecision) -> Out:
        """Return the record of a decision."""
        return self._out(QUEUE_DECISION.name, self._process, encode(one), f"{one.epoch}/{one.turn}", one.decided_ms)

    def _out(self, topic: str, key: str, value: bytes | None, event: str, event_ms: int) -> Out:
        return of_queue(topic, key, value, source=f"queue/{self._process}", which=event, event_ms=event_ms)

    def _decided(self, one: QueueDecision) -> QueueDecision:
        self.changed.update(each.uid for each in one.changes)
        self.ledger.decided(one)
        return one

    def _each(self, record: Record, take: Callable[[Record], str]) -> str:
        """Process one record; an error affects only that record."""
        try:
            return take(record)
        except Exception as exc:  # noqa: BLE001 - one record's: the next one is read
            self._dead(record, failure("take in", exc))
        return text_of(record.key or b"")

    def _dead(self, record: Record, why: str) -> None:
        self._dead_letters.append(dead_letter(record, reader=f"queue/{self._process}", reason=why, now_ms=self._now_ms))

    def _workload(self, record: Record) -> str:
        uid = text_of(record.key or b"")
        if record.value is None:
            self._wanted.pop(uid, None)
            self._unreadable.discard(uid)
            if uid in self.ledger.states:
                self._change(uid, "gone")
            return uid
        if uid not in self._wanted:
            self._unreadable.add(uid)  # until it can be decoded
        one = workload_of(record)
        found = wanted(one.workload)
        self._wanted[uid] = found
        self._unreadable.discard(uid)
        state = self.ledger.states.get(uid)
        if state is None and found.admission is not None and not found.finished:
            # Another queue admitted it: its quota counts from now on.
            pods = {each.name: each.pods for each in found.pod_sets}
            sets = admitted_sets(found.admission, pods, one.workload.metadata.name)
            booking = self._booking(found.admission.cluster_queue, sets)
            self._change(uid, "reserved", ADOPTED, booking=booking, started=True)
        elif state is not None and found.finished and state.phase != "finished":
            self._change(uid, "finished")
        elif state is not None and state.phase == "reserved" and not found.active:
            self._change(
                uid, "evicting", DEACTIVATED, state, evicted_ms=self._now_ms, evicted_reason="", requeue_count=0
            )
        elif state is not None and state.reason == REQUEUING_LIMIT and not found.active:
            self._change(uid, state.phase, DEACTIVATED, state, requeue_count=0)
        return uid

    def _outcome(self, record: Record) -> str:
        one = outcome_of(record)
        state = self.ledger.states.get(one.uid)
        booking = state.booking if state is not None else None
        if state is None or booking is None or (booking.epoch, booking.turn) != (one.epoch, one.turn):
            return one.uid  # it is for an earlier admission, or a duplicate
        match one.result:
            case "started":
                if not state.started:
                    self._change(one.uid, state.phase, state.reason, state, started=True)
            case "ready" | "unready":
                reason = ready_reason(state, one.result)
                if reason != state.ready_reason:
                    fields = {"started": True, "ready_reason": reason, "ready_ms": self._now_ms}
                    self._change(one.uid, state.phase, state.reason, state, **fields)
            case "finished":
                self._change(one.uid, "finished")
            case "stopped":
                self._change(one.uid, "pending", state.reason or "Stopped", retry_ms=state.retry_ms)
            case "conflict" | "refused":
                self._change(one.uid, "pending", NOT_STARTED, retry_ms=self._now_ms + RETRY_MS)
        self._view.sync(one.uid, self._now_ms)
        return one.uid

    def _forget_vanished(self) -> None:
        """At a term's start: forget workloads that were deleted meanwhile, a few per turn."""
        if self._vanished is None:
            known = {*self._wanted, *self._unreadable}
            self._vanished = sorted(uid for uid in self.ledger.states if uid not in known)
            for uid, state in self.ledger.states.items():
                self._note_due(uid, state)
        while self._vanished and len(self._changes) < CHANGES_MAX:
            uid = self._vanished.pop()
            if uid in self.ledger.states and uid not in self._wanted:
                self._change(uid, "gone")
                self._view.sync(uid, self._now_ms)

    def _evict(self, uid: str, reason: str, evicted_reason: str, **fields: object) -> None:
        """Let a workload that holds quota stop."""
        state = self.ledger.states[uid]
        times = {"evicted_ms": self._now_ms, "evicted_reason": evicted_reason}
        self._change(uid, "evicting", reason, state, **times, **fields)
        self._view.sync(uid, self._now_ms)

    def _evict_unready(self) -> None:
        for uid in sorted(uid for uid, at_ms in self._timeouts.items() if at_ms <= self._now_ms):
            state = self.ledger.states[uid]
            done = action(state, self._pods_ready, self._now_ms)
            if done.action in {"evict", "deactivate"}:
                reason, fields = evicted(done, self._now_ms)
                self._change(uid, "evicting", reason, state, **fields)
                self._view.sync(uid, self._now_ms)

    def _drain(self) -> None:
        """Evict from stopped queues that drain, a few per turn."""
        while self._draining and len(self._changes) < CHANGES_MAX:
            uid = self._draining.pop()
            state, one = self.ledger.states.get(uid), self._wanted.get(uid)
            if state is None or state.booking is None or state.phase != "reserved":
                continue
            local = (one.namespace, one.local) if one is not None else ("", "")
            stopped = self._specs.stopped(state.booking.cluster_queue, *local)
            if stopped.drains:
                self._evict(uid, stopped.reason, stopped.reason)

    def _exceeding(self) -> list[Exceeding]:
        scheduling, shares = self._view.scheduling, self._specs.shares
        if not shares:
            return []
        uids = [
            uid
            for one in excess(scheduling.holders.values(), scheduling.usage)
            if one.queue in shares
            for uid in one.stops
            if self.ledger.states[uid].phase == "reserved" and uid in self._wanted
        ]
        return [Exceeding(uid, self._wanted[uid].namespace, self._wanted[uid].name) for uid in uids]

    def _note_due(self, uid: str, state: QueueState) -> None:
        self._retries.pop(uid, None)
        self._timeouts.pop(uid, None)
        if state.retry_ms:
            self._retries[uid] = state.retry_ms
        done = action(state, self._pods_ready, self._now_ms)
        if done.action != "none":
            self._timeouts[uid] = self._now_ms // 1_000 * 1_000 + max(done.after_s, 0) * 1_000

    def _cycles(self) -> tuple[int, list[QueueEviction]]:
        """Run cycles until nothing changes, or the turn is full."""
        tried, evictions = 0, []
        self.goes_on = True
        for _ in range(CYCLES_MAX):
            if len(self._changes) >= CHANGES_MAX:
                break
            done = self._view.scheduling.cycle(self._now_ms // 1_000)
            tried += len(done.entries)
            new = self._evicted(done)
            evictions += new
            differs = bool([one for one in done.entries if self._tried(one, done.tries_on)]) or bool(new)
            self.goes_on = differs or self._view.scheduling.retry(self._now_ms // 1_000)
            if not self.goes_on:
                break
        self.goes_on = self.goes_on or bool(self._vanished)
        return tried, evictions

    def _tried(self, one: Entry, tries_on: Collection[str]) -> bool:
        """Record a workload's result; return whether its next cycle may differ. ``tries_on``: as of the cycle."""
        uid, done = one.head.queued.uid, one.assignment
        state = self.ledger.states.get(uid)
        if one.status == "assumed" and done is not None:
            booking = self._booking(one.head.cluster.queue.name, pod_sets_of(done))
            self._change(uid, "reserved", booking=booking)
            self._view.sync(uid, self._now_ms)
            return True
        if state is None or state.reason != one.requeue_reason or state.retry_ms:
            self._change(uid, "pending", one.requeue_reason)
            if one.requeue_reason == PREEMPTION_REPEATS and done is not None:
                self._repeats += [(uid, victim) for victim in one.head.repeated(done.targets)]
        if uid in tries_on:
            return True
        return not self._view.scheduling.waiting[one.head.cluster.queue.name].is_active(uid)

    def _evicted(self, done: Cycle) -> list[QueueEviction]:
        """Return workloads that begin to stop. Others already are in an earlier decision."""
        found = []
        for one in done.evictions:
            state = self.ledger.states.get(one.victim.uid)
            if state is not None and state.phase == "reserved":
                self._evict(one.victim.uid, one.reason, "", preemptor=one.preemptor.uid)
                found.append(eviction_record(one))
        return found

    def _booking(self, cluster_queue: str, sets: list[QueuePodSet]) -> QueueBooking:
        return QueueBooking(
            epoch=self.ledger.epoch,
            turn=self.ledger.turn + 1,
            cluster_queue=cluster_queue,
            reserved_ms=self._now_ms,
            pod_sets=sets,
        )

    def _change(
        self, uid: str, phase: Phase, reason: str = "", before: QueueState | None = None, **fields: object
    ) -> None:
        """Change the phase; fields that are not given keep their values from ``before``.

        Without it, a pending or admitted state keeps the history of evictions.
        """
        known, state = self.ledger.states.get(uid), before or QueueState(uid=uid, phase=phase, epoch=0, turn=0)
        if before is None and known is not None and phase in {"pending", "reserved"}:
            history = {name: getattr(known, name) for name in ("evicted_ms", "evicted_reason", "requeue_count")}
            state = msgspec.structs.replace(state, **history)
        stamp = {"phase": phase, "reason": reason, "epoch": self.ledger.epoch, "turn": self.ledger.turn + 1}
        state = msgspec.structs.replace(state, **stamp, **fields)
        self._changes[uid] = state
        self.ledger.change(state)
        self._note_due(uid, state)
