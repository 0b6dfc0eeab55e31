"""What a queue would do, from event to event."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue import simulation
from slacktide.streams.decisions.queue.assign import Fungibility, Group, PodSet
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeFlavor, NodeNeeds
from slacktide.streams.decisions.queue.missing import Missing, missing, wait
from slacktide.streams.decisions.queue.preempt import Preemption
from slacktide.streams.decisions.queue.queue_order import Pending, Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, QuotaTree, quota_tree
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Scheduling, Settings, Workload
from slacktide.streams.decisions.queue.simulation import Arrival, Happened, Simulation
from testbed.queue_worlds import trees
from testbed.vectors import each_row

CPU, FAST = FlavorResource("f", "cpu"), FlavorResource("fast", "cpu")
GROUPS = (Group(frozenset({"cpu"}), ("f",)),)
LOWER = Preemption("LowerPriority", "Any")


def job(uid, queue, cpu, at_s=0, *, priority=0) -> Arrival:
    pod_sets = (PodSet("main", 1, None, {"cpu": cpu}, NodeNeeds()),)
    return Arrival(at_s, Workload(Pending(Queued(uid, priority, at_s), pod_sets=cpu), queue, pod_sets))


def one_queue() -> QuotaTree:
    return quota_tree([NodeSpec("a", quotas={CPU: Quota(4000)})])


def started(tree, run_s, *, fair=False, groups=GROUPS, corrected=False) -> Simulation:
    queues = [ClusterQueue(node, groups, policies=LOWER) for node in tree.queues.values()]
    return Simulation(Scheduling(queues, (), Settings(fair_sharing=fair, corrected=corrected)), run_s, 0)


def test_a_job_that_was_not_tried_yet_has_an_interval() -> None:
    run = started(one_queue(), {})
    list(run.run([job("x", "a", 1000)]))
    run.state.push(job("w", "a", 1000).workload, 0)
    run = Simulation(run.state, {}, 0)
    (waiting,) = (one for one in run.outcomes() if one.state == "waiting")
    assert waiting.wait.state == "interval"
    assert waiting.entry is None


def test_workloads_that_preempt_one_another_without_end_are_stopped(monkeypatch) -> None:
    monkeypatch.setattr(simulation, "CYCLES_MAX", 3)
    run = started(one_queue(), {f"w{at}": 1 for at in range(9)})
    list(run.run([job(f"w{at}", "a", 4000, at) for at in range(9)]))
    assert (run.unfinished, run.state.cycles_run) == (True, 3)
    run = Simulation(run.state, {}, 0)
    list(run.run([]))
    assert run.unfinished, "the state has had as many cycles before"


@pytest.mark.parametrize("corrected", [False, True])
def test_a_preemption_on_the_first_flavor_is_not_tried_again_until_its_victim_stopped(corrected) -> None:
    """Others are left to try, but its victims are chosen: the next cycle begins at the first flavor again."""
    tree = quota_tree([NodeSpec("a", quotas={CPU: Quota(4), FAST: Quota(4)})])
    groups = (Group(frozenset({"cpu"}), ("f", "fast")),)
    queues = [ClusterQueue(tree.queues["a"], groups, Fungibility(next_when_preempting=False), policies=LOWER)]
    run = Simulation(Scheduling(queues, (), Settings(corrected=corrected)), {}, 0)
    happened = list(run.run([job("low", "a", 4), job("high", "a", 4, 1, priority=1)]))
    assert [(one.at_s, one.kind, one.uid) for one in happened if one.kind != "arrived"] == [
        (0, "admitted", "low"), (1, "evicted", "low"), (2, "admitted", "high"), (2, "admitted", "low")
    ]  # fmt: skip
    assert (run.unfinished, run.state.cycles_run < 20) == (False, True)


@pytest.mark.parametrize(("corrected", "state"), [(False, "waiting"), (True, "running")])
def test_corrected_a_search_that_found_nothing_behind_the_first_flavor_begins_anew(corrected, state) -> None:
    """Of what is left of the first flavor another job takes all in the same cycle. Then its own queue's job may go."""
    quotas = {"a": Quota(2), "b": Quota(4)}
    tree = quota_tree([NodeSpec(name, "c", {CPU: of, FAST: Quota(0)}) for name, of in quotas.items()], [NodeSpec("c")])
    groups = (Group(frozenset({"cpu"}), ("f", "fast")),)
    run = started(tree, {}, groups=groups, corrected=corrected)
    list(run.run([job("low", "b", 4), job("other", "a", 2, 1), job("high", "b", 1, 1, priority=1)]))
    found = {one.uid: (one.state, one.entry.requeue_reason) for one in run.outcomes()}
    assert found["high"] == (state, "" if corrected else "NoFit")
    assert run.state.cycles_run < 20


def endless(run_s, *later, corrected=False) -> tuple[Simulation, list[Happened]]:
    """By shares c preempts a, which is admitted again as soon as its quota is free, before c."""
    tree = quota_tree([NodeSpec("q0", "c", {CPU: Quota(4)}), NodeSpec("q1", "c", {CPU: Quota(3)})], [NodeSpec("c")])
    run = started(tree, run_s, fair=True, corrected=corrected)
    jobs = [job("a", "q1", 4), job("b", "q0", 2, 1), job("c", "q0", 4, 2, priority=10), *later]
    return run, list(run.run(jobs))


@each_row("run_s", "later", "at_s", "evicted_count")
def test_jobs_that_preempt_each_other_without_end_are_named(run_s, later, at_s, evicted_count) -> None:
    run, happened = endless(run_s, *(job(*one) for one in later))
    assert (happened[-1].kind, happened[-1].at_s, run.unfinished) == ("repeats", at_s, True)
    assert (run.repeats.preemptor.uid, run.repeats.victim.uid) == ("c", "a")
    assert sum(one.kind == "evicted" for one in happened) == evicted_count


def test_corrected_the_second_preemption_of_the_same_job_waits_until_one_finishes() -> None:
    run, _ = endless({}, corrected=True)
    waits = next(one for one in run.outcomes() if one.state == "waiting")
    assert (waits.uid, waits.entry.requeue_reason, run.unfinished) == ("c", "PreemptionRepeats", False)

    run, _ = endless({"b": 60, "a": 600}, corrected=True)
    assert next(one.state for one in run.outcomes() if one.uid == "c") == "running", "tried when b had finished"
    assert not run.unfinished


def test_jobs_that_preempt_each_other_until_another_finishes_are_simulated_to_the_end() -> None:
    run, _ = endless({"b": 99})
    assert not run.unfinished


@given(trees(), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2)), max_size=9), st.booleans())
def test_corrected_no_jobs_preempt_one_another_without_end(tree, asked, fair) -> None:
    names = sorted(tree.queues)
    run = started(tree, {}, fair=fair, corrected=True)
    list(run.run([job(f"w{at}", names[at % len(names)], *one[:2], priority=one[2]) for at, one in enumerate(asked)]))
    assert not run.unfinished


def test_admissions_of_the_last_hour_make_the_interval() -> None:
    run = started(one_queue(), {f"w{at}": 1 for at in range(4)})
    list(run.run([job(f"w{at}", "a", 1000, at) for at in range(4)], 3601))
    run.state.push(job("late", "a", 1000).workload, 3601)
    waits = {}
    for now_s in (3599, 3600, 3601, 7200):
        run.now_s = now_s
        run._queue_of["late"] = "a"
        waits[now_s] = next(one.wait for one in run.outcomes() if one.uid == "late")
    assert waits == {now_s: wait(1, count) for now_s, count in ((3599, 4), (3600, 3), (3601, 2), (7200, 0))}


def test_a_job_that_is_held_up_waits_for_the_reason_of_its_last_try() -> None:
    run = started(one_queue(), {})
    list(run.run([job("x", "a", 3000), job("y", "a", 2000)]))
    aside = job("v", "a", 2000, 1).workload
    run.state.push(aside, 1)
    run._queue_of["v"] = "a"
    reasons = {one.uid: one.wait.reason for one in run.outcomes() if one.wait}
    assert reasons == {
        "y": "it waits for quota: PreemptionNoCandidates",
        "v": "it waits for quota: its shape does not fit",
    }


@given(
    trees(), st.booleans(), st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 2)), max_size=8)
)
def test_every_job_that_comes_is_running_waits_or_is_done_and_a_second_run_is_the_same(tree, fair, asked) -> None:
    names = sorted(tree.queues)
    jobs = [
        job(f"w{at}", names[at % len(names)], cpu, at_s, priority=priority)
        for at, (cpu, at_s, priority) in enumerate(asked)
    ]
    run_s = {f"w{at}": 3 for at in range(len(jobs))}
    runs = [started(tree, run_s, fair=fair) for _ in range(2)]
    first, second = (list(one.run(jobs)) for one in runs)
    assert first == second
    outcomes = runs[0].outcomes()
    assert {one.uid for one in outcomes} == {one.workload.uid for one in jobs}
    assert all(one.state != "running" for one in outcomes)
    assert runs[0].state.holders == {}


def test_the_flavor_counts_that_lacks_least() -> None:
    tree = quota_tree([NodeSpec("a", quotas={CPU: Quota(1), FAST: Quota(3)})])
    groups = (Group(frozenset({"cpu"}), ("f", "fast")), Group(frozenset({"pods"}), ("f",)))
    cluster = started(tree, {}, groups=groups).state.cluster("a", 0)
    pods = FlavorResource("f", "pods")
    one = PodSet("one", 2, None, {"cpu": 2, "x": 1, "y": 0}, NodeNeeds())
    assert missing([one], cluster) == Missing({FAST: 1, pods: 2}, ("x",), ())
    assert missing([one, one], cluster) == Missing({CPU: 3, FAST: 1, pods: 4}, ("x",), ())
    cluster = cluster._replace(flavors={name: NodeFlavor({"zone": name}) for name in ("f", "fast")})
    slow = NodeNeeds(affinity=((Expression("zone", "In", ("f",)),),))
    assert missing([one._replace(nodes=slow)], cluster).amounts == {CPU: 3, pods: 2}
    assert missing([one._replace(nodes=NodeNeeds({"zone": "none"}))], cluster) == Missing({}, ("x",), ("one",))
