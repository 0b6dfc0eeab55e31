"""Cases of the rules that order, requeue and evict workloads of a ClusterQueue."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, into, unique, unique_ids
from slacktide.deploy.cli.calc.forms import Flat, Form, Given, Nullable, Seconds
from slacktide.deploy.cli.calc.queue_quota import ClusterInput, GivenCondition, GivenWorkload, QueueAmount, known
from slacktide.schemas.errors import CaseError
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.job import (
    JobProgress,
    PodsReadyConfig,
    Waiting,
    admission_open,
    pods_ready_action,
    pods_ready_condition,
)
from slacktide.streams.decisions.queue.queue_order import (
    Pending,
    PendingQueue,
    QueueingStrategy,
    RequeuingTimestamp,
    place,
)


def calc_queue_order(
    *, requeuing_timestamp: RequeuingTimestamp = "Eviction", workloads: Sequence[GivenWorkload]
) -> Calculated:
    """Sort the workloads of a ClusterQueue; the first is next."""
    unique((one.name for one in workloads), "input.workloads[{}].name")
    places = [(place(one.queued(), requeuing_timestamp), one) for one in workloads]
    places.sort(key=lambda each: each[0])
    because = []
    for at, one in places:
        terms: Terms = {"priority": -at.priority_negated}
        if one.sub_priority:
            terms["sub_priority"] = one.sub_priority
        terms["queue_time_s"] = at.queue_time_s
        bound = "created" if at.queue_time_s == one.created_s else "evicted"
        because.append(Because(of=f"order/{one.name}", bound=bound, terms=terms))
    return Calculated(output={"order": [one.name for _, one in places]}, because=because)


Duration = Annotated[int, msgspec.Meta(ge=0, le=2**32)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
GivenConfig = Annotated[
    PodsReadyConfig,
    Form(
        strict=True,
        timeout_s=Duration,
        recovery_timeout_s=Nullable[Duration],
        backoff_base_s=Duration,
        backoff_max_s=Duration,
        backoff_limit_count=Count | None,
    ),
]
GivenWaiting = Annotated[Waiting, Form(strict=True, pods_ready=GivenCondition | None, requeue_count=Nullable[Count])]


def calc_queue_pods_ready(
    *, now_seconds: Seconds, config: GivenConfig | None = None, workload: GivenWaiting
) -> Calculated:
    """Decide the action on an admitted workload without ready pods; without settings, no workload waits for pods."""
    done = pods_ready_action(workload, config, now_seconds)
    output: dict[str, object] = {"action": done.action}
    if done.cause:
        output["cause"] = done.cause
    if done.action == "recheck":
        output["after_seconds"] = done.after_s
    if done.action == "evict":
        output |= {
            "backoff_seconds": done.backoff_s,
            "requeue_count": done.requeue_count,
            "requeue_at_seconds": done.requeue_at_s,
        }
    terms: Terms = {"left_s": done.after_s, "requeue_count": done.requeue_count} if done.cause else {}
    return Calculated(output=output, because=[Because(of="action", bound=done.cause or "none", terms=terms)])


def progress_form(count: Any) -> Form:
    """Return the form of a Job's pod counts, of which absent ones are 0, and absent completions are not set."""
    counted = Nullable[QueueAmount]
    return Form(
        parallelism=(count, 1), completions=count | None, succeeded=counted, ready=counted, uncounted_succeeded=counted
    )


def calc_queue_pods_ready_condition(
    *,
    progress: Flat[Annotated[JobProgress, progress_form(QueueAmount)]],
    admitted: bool,
    pods_ready: GivenCondition | None = None,
) -> Calculated:
    """Compute the PodsReady condition of a Job's workload by its old condition."""
    status, reason = pods_ready_condition(pods_ready, admitted=admitted, ready=progress.pods_ready)
    terms: Terms = {
        "succeeded_count": progress.succeeded,
        "ready_count": progress.ready,
        "uncounted_succeeded_count": progress.uncounted_succeeded,
        "spec_count": progress.spec_count,
    }
    return Calculated(
        output={"status": status, "reason": reason}, because=[Because(of="status", bound=reason, terms=terms)]
    )


class GivenPending(GivenWorkload, frozen=True, kw_only=True):
    """A pending workload. Pod sets are compared as text."""

    generation: int = 0
    namespace_mismatch: bool = False
    requeued: GivenCondition | None = None
    requeue_at_s: Seconds | None = None
    pod_sets: Nullable[list[dict[str, Any]]] = []

    def pending(self) -> Pending:
        """Convert to the rule's type."""
        return into(
            Pending,
            self,
            queued=self.queued(),
            namespace_matches=not self.namespace_mismatch,
            pod_sets=msgspec.json.encode(self.pod_sets, order="deterministic"),
        )


class GivenEvent(Given, frozen=True, kw_only=True):
    """An event of a ClusterQueue, at the time set by ``advance``."""

    type: Literal["push", "pop", "requeue", "retry", "delete", "advance"]
    workload: str | None = None
    update: GivenPending | None = None
    """The new version of the workload."""
    reason: str = ""
    pending_flavors: bool = False
    seconds: Duration = 0


class _Queue(PendingQueue):
    """A ClusterQueue, its current workloads by name, and the time."""

    def __init__(self, strategy: QueueingStrategy, workloads: Sequence[GivenPending], now_s: int) -> None:
        super().__init__(strategy)
        unique((one.name for one in workloads), "input.workloads[{}].name")
        self.workloads = {one.name: one.pending() for one in workloads}
        self.names = {one.uid: name for name, one in self.workloads.items()}
        unique_ids([one.uid for one in self.workloads.values()], "input.workloads")
        self.now_s = now_s

    def happen(self, event: GivenEvent, field: str) -> dict[str, object]:
        """Apply an event, and return its result."""
        if event.type == "pop":
            popped = self.pop()
            return {"popped": None if popped is None else self.names[popped.uid]}
        if event.type == "retry":
            return {"moved": self.retry(self.now_s)}
        if event.type == "advance":
            self.now_s += event.seconds
            return {}
        one = known(self.workloads, event.workload or "", f"{field}.workload")
        if event.type == "requeue":
            return {"added": self.requeue(one, event.reason, self.now_s, pending_flavors=event.pending_flavors)}
        if event.type == "delete":
            self.delete(one.uid)
        else:
            self.push(self._updated(one, event, field), self.now_s)
        return {}

    def _updated(self, one: Pending, event: GivenEvent, field: str) -> Pending:
        if event.update is None:
            return one
        updated = event.update.pending()
        if updated.uid != one.uid:
            raise CaseError(f"{field}.update.uid", f"{updated.uid}: accepted: {one.uid}, the uid of the workload")
        self.workloads[event.workload or ""] = updated
        return updated


def calc_queue_requeue(
    *,
    now_seconds: Seconds = 0,
    queueing_strategy: QueueingStrategy = "BestEffortFIFO",
    workloads: Sequence[GivenPending],
    events: Nullable[Sequence[GivenEvent]] = (),
) -> Calculated:
    """Compute which workloads of a ClusterQueue are active, inadmissible and requeued, after each event."""
    queue, after, because = _Queue(queueing_strategy, workloads, now_seconds), [], []
    for at, event in enumerate(events):
        done = queue.happen(event, f"input.events[{at}]")
        active = [queue.names[one.uid] for one in queue.active]
        inadmissible = sorted(queue.names[one.uid] for one in queue.inadmissible)
        after.append({"active_in_order": active, "inadmissible": inadmissible} | done)
        terms: Terms = {"now_s": queue.now_s, "active_count": len(active), "inadmissible_count": len(inadmissible)}
        because.append(Because(of=f"after_each_event/{at}", bound=event.reason or event.type, terms=terms))
    return Calculated(output={"after_each_event": after}, because=because)


class _QueueBlockAdmissionInput(ClusterInput, frozen=True, kw_only=True):
    block_admission: bool = False
    ready: Nullable[dict[str, GivenCondition]] = {}


def calc_queue_block_admission(given: _QueueBlockAdmissionInput) -> Calculated:
    """Decide whether a workload may be admitted now."""
    holding = [given.ready.get(one.name) for one in given.admitted]
    is_open = admission_open(block_admission=given.block_admission, holding=holding)
    ready = sum(one is not None and one.status for one in holding)
    bound = "off" if not given.block_admission else "all_ready" if is_open else "not_ready"
    because = Because(of="open", bound=bound, terms={"holding_count": len(holding), "ready_count": ready})
    return Calculated(output={"open": is_open}, because=[because])
