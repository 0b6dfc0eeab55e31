"""Cases of the rules of scheduling cycles."""

from typing import Annotated

import msgspec

from slacktide.deploy.cli.calc.case import Calculated, into, unique, unique_ids
from slacktide.deploy.cli.calc.forms import Seconds
from slacktide.deploy.cli.calc.queue_assign import AssignInput, GivenPendingWorkload, shown
from slacktide.deploy.cli.calc.queue_quota import GivenCondition, known
from slacktide.schemas.message import Terms
from slacktide.streams.decisions.because import Because
from slacktide.streams.decisions.queue.cycle import Entry, Eviction
from slacktide.streams.decisions.queue.queue_order import Pending
from slacktide.streams.decisions.queue.quota_tree import QuotaTree
from slacktide.streams.decisions.queue.scheduling import Scheduling, Workload

Cycles = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class GivenWaiting(GivenPendingWorkload, frozen=True, kw_only=True):
    """A workload that is pending in its ClusterQueue."""

    generation: int = 0
    namespace_mismatch: bool = False
    requeued: GivenCondition | None = None
    requeue_at_s: Seconds | None = None

    def workload(self, field: str) -> Workload:
        """Convert to the rule's type."""
        pending = into(
            Pending,
            self,
            queued=self.queued(),
            namespace_matches=not self.namespace_mismatch,
            pod_sets=msgspec.json.encode(self.pod_sets, order="deterministic"),
        )
        return Workload(pending, self.cluster_queue, tuple(self.sets(field)))


class CycleInput(AssignInput, frozen=True, kw_only=True):
    """A cluster, pending workloads, and the number of cycles."""

    pending: list[GivenWaiting]
    cycles: Cycles = 1

    def scheduling(self, tree: QuotaTree) -> Scheduling:
        """Create the scheduling state, and push all workloads."""
        holders = [one for _, one in self.holders(tree)]
        state = Scheduling(self.queues(tree), holders, self.settings())
        for at, one in enumerate(self.pending):
            known(tree.queues, one.cluster_queue, f"input.pending[{at}].cluster_queue")
            state.push(one.workload(f"input.pending[{at}]"), self.now_seconds)
        return state

    def names(self) -> dict[str, str]:
        """Return the names of all workloads by uid."""
        names = [(one.queued().uid, one.name) for one in (*self.admitted, *self.pending)]
        unique_ids([uid for uid, _ in names], "input.pending")
        unique((one.name for one in self.pending), "input.pending[{}].name")
        return dict(names)


def calc_queue_cycle(given: CycleInput) -> Calculated:
    """Run the given number of cycles, or until no workload may be tried, without fair sharing by default."""
    names = given.names()
    state = given.scheduling(given.tree())
    cycles: list[dict[str, object]] = []
    because = []
    while len(cycles) < given.cycles and (done := state.cycle(given.now_seconds)).entries:
        at = f"cycles/{len(cycles)}"
        because += [_because(one, f"{at}/entries_in_order/{index}") for index, one in enumerate(done.entries)]
        because += [_evicted(one, f"{at}/evictions", names) for one in done.evictions]
        after = {
            name: {
                "active_in_order": [names[one.uid] for one in queue.active],
                "inadmissible": sorted(names[one.uid] for one in queue.inadmissible),
            }
            for name, queue in state.waiting.items()
        }
        cycles.append({"entries_in_order": [_entry(one, names) for one in done.entries], "queues_after": after})
    return Calculated(output={"cycles": cycles}, because=because)


def _entry(one: Entry, names: dict[str, str]) -> dict[str, object]:
    output: dict[str, object] = {"name": names[one.head.queued.uid], "cluster_queue": one.head.cluster.queue.name}
    output |= {field: getattr(one, field) for field in ("status", "requeue_reason", "quota_reason", "keeps_progress")}
    return output if one.assignment is None else output | {"assignment": shown(one.assignment, names)}


def _evicted(one: Eviction, of: str, names: dict[str, str]) -> Because:
    terms: Terms = {
        "preemptor_share_before": one.preemptor.share_before,
        "preemptor_share_after": one.preemptor.share_after,
        "victim_share_before": one.victim.share_before,
        "victim_share_after": one.victim.share_after,
    }
    return Because(of=f"{of}/{names[one.victim.uid]} for {names[one.preemptor.uid]}", bound=one.reason, terms=terms)


def _because(one: Entry, of: str) -> Because:
    done = one.assignment
    terms: Terms = {"priority": one.head.queued.priority or 0}
    if done is not None:
        terms |= {"borrowing_height": done.height, "target_count": len(done.targets)}
    return Because(of=of, bound=one.requeue_reason or one.status, terms=terms)


class _QueueCycleFairInput(CycleInput, frozen=True, kw_only=True):
    fair_sharing: bool = True


def calc_queue_cycle_fair(given: _QueueCycleFairInput) -> Calculated:
    """Run scheduling cycles with fair sharing."""
    return calc_queue_cycle(given)
