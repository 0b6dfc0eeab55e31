"""``slacktide calc queue_requeue``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, Given, Seconds
from slacktide.deploy.cli.calc.queue.queue_case import GivenCondition, GivenWorkload, known, unique
from slacktide.schemas.errors import CaseError
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.pending_queue import Pending, PendingQueue, QueueingStrategy

Elapsed = Annotated[int, msgspec.Meta(ge=0, le=2**32)]


class GivenPending(GivenWorkload, frozen=True, kw_only=True):
    """A pending workload. Pod sets are compared as text."""

    generation: int = 0
    namespace_mismatch: bool = False
    requeued: GivenCondition | None = None
    requeue_at_seconds: Seconds | None = None
    pod_sets: list[dict[str, Any]] | None = None

    def pending(self) -> Pending:
        """Convert to the rule's type."""
        return Pending(
            queued=self.queued(),
            generation=self.generation,
            namespace_matches=not self.namespace_mismatch,
            requeued=None if self.requeued is None else self.requeued.condition(),
            requeue_at_s=self.requeue_at_seconds,
            pod_sets=msgspec.json.encode(self.pod_sets or (), order="deterministic"),
        )


class GivenEvent(Given, frozen=True, kw_only=True):
    """An event of a ClusterQueue, at the time set by ``advance``."""

    type: Literal["push", "pop", "requeue", "retry", "delete", "advance"]
    workload: str | None = None
    update: GivenPending | None = None
    """The new version of the workload."""
    reason: str = ""
    pending_flavors: bool = False
    seconds: Elapsed = 0


class Input(Given, frozen=True, kw_only=True):
    """Workloads of a ClusterQueue, and events in order."""

    now_seconds: Seconds = 0
    queueing_strategy: QueueingStrategy = "BestEffortFIFO"
    workloads: list[GivenPending]
    events: list[GivenEvent] | None = None


class _Run:
    """A ClusterQueue, its current workloads, and the time."""

    def __init__(self, given: Input) -> None:
        unique((one.name for one in given.workloads), "input.workloads")
        self.queue = PendingQueue(given.queueing_strategy)
        self.workloads = {one.name: one.pending() for one in given.workloads}
        self.names = {one.uid: name for name, one in self.workloads.items()}
        if len(self.names) < len(self.workloads):
            raise CaseError("input.workloads", "uids are not unique; accepted: each uid once")
        self.now_s = given.now_seconds

    def done(self, event: GivenEvent, field: str) -> dict[str, object]:
        """Apply an event, and return its result."""
        if event.type == "pop":
            popped = self.queue.pop()
            return {"popped": None if popped is None else self.names[popped.uid]}
        if event.type == "retry":
            return {"moved": self.queue.retry(self.now_s)}
        if event.type == "advance":
            self.now_s += event.seconds
            return {}
        return self._of_workload(event, field)

    def _of_workload(self, event: GivenEvent, field: str) -> dict[str, object]:
        name = event.workload or ""
        one = known(self.workloads, name, f"{field}.workload")
        if event.type == "requeue":
            return {"added": self.queue.requeue(one, event.reason, self.now_s, pending_flavors=event.pending_flavors)}
        if event.type == "delete":
            self.queue.delete(one.uid)
            return {}
        if event.update is not None:
            updated = event.update.pending()
            if updated.uid != one.uid:
                raise CaseError(f"{field}.update.uid", f"{updated.uid}: accepted: {one.uid}, the uid of the workload")
            self.workloads[name] = one = updated
        self.queue.push(one, self.now_s)
        return {}


def calculate(given: Input) -> Calculated:
    """Compute which workloads are active, inadmissible and requeued."""
    run = _Run(given)
    after, because = [], []
    for at, event in enumerate(given.events or ()):
        done = run.done(event, f"input.events[{at}]")
        active = [run.names[one.uid] for one in run.queue.active]
        inadmissible = sorted(run.names[one.uid] for one in run.queue.inadmissible)
        after.append({"active_in_order": active, "inadmissible": inadmissible} | done)
        terms: Terms = {"now_s": run.now_s, "active_count": len(active), "inadmissible_count": len(inadmissible)}
        because.append(Because(of=f"after_each_event/{at}", bound=event.reason or event.type, terms=terms))
    return Calculated(output={"after_each_event": after}, because=because)
