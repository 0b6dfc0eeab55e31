"""A queue from event to event, by cases in the form of ``slacktide calc queue_cycle``."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from slacktide.deploy.cli.calc.forms import Given, Nullable
from slacktide.deploy.cli.calc.queue_assign import GivenHolder, shown
from slacktide.deploy.cli.calc.queue_cycle import CycleInput, GivenWaiting
from slacktide.streams.decisions.queue.flavor_match import PodGroup
from slacktide.streams.decisions.queue.preempt import Holder
from slacktide.streams.decisions.queue.quota_tree import QuotaTree
from slacktide.streams.decisions.queue.scheduling import Cycle, Scheduling, Settings
from slacktide.streams.decisions.queue.simulation import Arrival, Simulation
from testbed.plain import plain

Json = dict[str, Any]


class Holding(GivenHolder, frozen=True, kw_only=True):
    """``pods_milli``: of pods on nodes of flavor f."""

    pods_milli: list[int] = []


class Event(Given, frozen=True, kw_only=True):
    """``changed``: whether quotas or flavors did; ``ready``: whether pods are."""

    type: Literal["push", "cycle", "cycles", "hold", "release", "delete", "retry", "pods_ready"]
    at_s: int = 0
    workload: GivenWaiting | None = None
    holder: Holding | None = None
    uid: str = ""
    queue: str = ""
    changed: bool = False
    ready: bool = True


class EventsInput(CycleInput, frozen=True, kw_only=True):
    """``sizes_milli``: nodes by flavor, each with a GiB of memory."""

    admitted: Nullable[list[Holding]] = []  # type: ignore[assignment]
    pending: list[GivenWaiting] = []
    events: list[Event] = []
    block_admission: bool = False
    sizes_milli: dict[str, list[int]] = {}

    def settings(self) -> Settings:
        sizes = {flavor: [(each, 2**30) for each in nodes] for flavor, nodes in self.sizes_milli.items()}
        return super().settings()._replace(block_admission=self.block_admission, sizes=sizes)

    def holders(self, tree: QuotaTree) -> list[tuple[str, Holder]]:
        return [
            (name, held._replace(pods=tuple(PodGroup("f", 1, milli, 0) for milli in one.pods_milli)))
            for one, (name, held) in zip(self.admitted, super().holders(tree), strict=True)
        ]


def replay(given: EventsInput) -> Iterator[Json]:
    """What each event leads to, with where workloads are after it."""
    tree = given.tree()
    state = given.scheduling(tree)
    for one in given.events:
        yield {"done": _done(one, state, given, tree), **standing(state)}


def _done(one: Event, state: Scheduling, given: EventsInput, tree: QuotaTree) -> Any:
    if one.type == "cycle":
        return shown_cycle(state.cycle(one.at_s), state)
    if one.type == "cycles":
        return [shown_cycle(done, state) for done in state.cycles(one.at_s)]
    if one.type == "retry":
        return state.waiting[one.queue].retry(one.at_s, changed=one.changed)
    if one.workload is not None:
        state.push(one.workload.workload("workload"), one.at_s)
    elif one.holder is not None:
        [(_, held)] = msgspec.structs.replace(given, admitted=[one.holder]).holders(tree)
        state.hold(held)
    elif one.type == "pods_ready":
        state.pods_ready(one.uid, ready=one.ready)
    else:
        (state.release if one.type == "release" else state.delete)(one.uid)
    state.retry(one.at_s)
    return None


def standing(state: Scheduling) -> Json:
    """Who waits, who holds quota, and what is left of it."""
    return {
        "active": {name: [one.uid for one in queue.active] for name, queue in state.waiting.items()},
        "inadmissible": sorted(one.uid for queue in state.waiting.values() for one in queue.inadmissible),
        "holders": plain(state.holders),
        "available": {
            name: plain({of: state.usage.available(queue.node, of) for of in queue.node.root().subtree})
            for name, queue in state.queues.items()
        },
    }


def shown_cycle(done: Cycle, state: Scheduling) -> Json:
    uids = {uid: uid for uid in (*state.holders, *state.known)}
    entries = [
        {
            "uid": one.head.queued.uid,
            "assignment": one.assignment and shown(one.assignment, uids),
            "saved": one.assignment and one.assignment.targets_saved_count,
            **{name: getattr(one, name) for name in ("status", "requeue_reason", "quota_reason", "keeps_progress")},
        }
        for one in done.entries
    ]
    return {"entries": entries, "evictions": plain(done.evictions)}


class Coming(Given, frozen=True, kw_only=True):
    """A job that arrives."""

    at_s: int
    workload: GivenWaiting


class SimulationInput(EventsInput, frozen=True, kw_only=True):
    """``known``: workloads that hold quota and come back once they are evicted."""

    arrivals: list[Coming] = []
    known: list[GivenWaiting] = []
    run_s: dict[str, int] = {}
    until_s: int | None = None


def simulated(given: SimulationInput) -> Json:
    """What happens, and where each workload ends."""
    state = given.scheduling(given.tree())
    state.known |= {one.name: one.workload("known") for one in given.known}
    run = Simulation(state, given.run_s, given.now_seconds)
    events = run.run([Arrival(one.at_s, one.workload.workload("arrival")) for one in given.arrivals], given.until_s)
    return {
        "events": plain(list(events)),
        "outcomes": plain([one._replace(entry=None) for one in run.outcomes()]),
        "tried": [one.uid for one in run.outcomes() if one.entry is not None],
        "end": [run.now_s, run.unfinished, run.state.cycles_run],
    }
