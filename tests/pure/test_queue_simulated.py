"""A simulated queue and the decider over a log: the same workloads run in each second."""

import asyncio
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue.assign import Group, PodSet
from slacktide.streams.decisions.queue.flavor_match import NodeNeeds
from slacktide.streams.decisions.queue.preempt import Preemption
from slacktide.streams.decisions.queue.queue_order import Pending, Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, quota_tree
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Scheduling, Settings, Workload
from slacktide.streams.decisions.queue.simulation import Arrival, Simulation
from testbed.queue_log import FLAVOR, Cluster, Log, local, queue, standing, term, turns, workload

QUEUES = "abc"
CPU = FlavorResource("default", "cpu")
GROUPS = (Group(frozenset({"cpu"}), ("default",)),)
EVERY_S = 12
"""Workloads arrive so far from one another that all preemptions have come to an end."""


class Job(NamedTuple):
    queue: str
    cpu: int
    priority: int


def simulated(quotas: list[int], jobs: list[Job], *, fair: bool) -> list[set[str]]:
    """Which workloads run at the end of each second."""
    cohort = zip(QUEUES, quotas, strict=True)
    tree = quota_tree([NodeSpec(name, "all", {CPU: Quota(cpu)}) for name, cpu in cohort], [NodeSpec("all")])
    queues = [ClusterQueue(node, GROUPS, policies=Preemption("LowerPriority", "Any")) for node in tree.queues.values()]
    run = Simulation(Scheduling(queues, (), Settings(fair_sharing=fair, corrected=True)), {}, 0)
    arrivals = []
    for number, one in enumerate(jobs):
        at_s = 1 + number * EVERY_S
        pod_sets = (PodSet("main", 1, None, {"cpu": one.cpu}, NodeNeeds()),)
        pending = Pending(Queued(f"uid-{number:05}", one.priority, at_s), pod_sets=one.cpu)
        arrivals.append(Arrival(at_s, Workload(pending, one.queue, pod_sets)))
    happened = list(run.run(arrivals))
    running: set[str] = set()
    found = []
    for second in range(1, 1 + len(jobs) * EVERY_S):
        for one in happened:
            if one.at_s == second and one.kind in {"admitted", "evicted"}:
                (running.add if one.kind == "admitted" else running.discard)(one.uid)
        found.append(set(running))
    return found


async def decided(quotas: list[int], jobs: list[Job], *, fair: bool) -> list[set[str]]:
    """The same, by a decider and a cluster that stops pods within a second."""
    log = Log()
    log.put(FLAVOR, *(queue(name, str(cpu)) for name, cpu in zip(QUEUES, quotas, strict=True)), *map(local, QUEUES))
    one, cluster = term(log, "first", fair_sharing=fair), Cluster(log)
    await one.begin(None)
    found = []
    for number, job in enumerate(jobs):
        log.put(workload(number, job.queue, str(job.cpu), priority=job.priority, created_s=1 + number * EVERY_S))
        for _ in range(EVERY_S):
            await turns(one, cluster, 1)
            found.append({uid for uid, (phase, *_) in standing(log).items() if phase == "reserved"})
    return found


@given(
    st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(0, 2)).map(list),
    st.lists(st.builds(Job, st.sampled_from(QUEUES), st.integers(1, 4), st.integers(0, 3)), min_size=3, max_size=6),
    st.booleans(),
)
def test_a_simulation_admits_and_evicts_when_a_running_queue_does(quotas, jobs, fair) -> None:
    assert simulated(quotas, jobs, fair=fair) == asyncio.run(decided(quotas, jobs, fair=fair))
