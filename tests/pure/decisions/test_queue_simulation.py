"""What a queue would do, from event to event."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.queue import simulation
from slacktide.streams.decisions.queue.assign import Group, PodSet
from slacktide.streams.decisions.queue.flavor_match import Expression, NodeFlavor, NodeNeeds
from slacktide.streams.decisions.queue.missing import Missing, missing, wait
from slacktide.streams.decisions.queue.preempt import Holder, Preemption
from slacktide.streams.decisions.queue.queue_order import Condition, Pending, Queued
from slacktide.streams.decisions.queue.quota_tree import FlavorResource, NodeSpec, Quota, QuotaTree, quota_tree
from slacktide.streams.decisions.queue.scheduling import ClusterQueue, Scheduling, Settings, Workload
from slacktide.streams.decisions.queue.simulation import Arrival, Simulation
from testbed.queue_worlds import trees

CPU, FAST = FlavorResource("f", "cpu"), FlavorResource("fast", "cpu")
GROUPS = (Group(frozenset({"cpu"}), ("f",)),)
LOWER = Preemption("LowerPriority", "Any")


def job(uid, queue, cpu, at_s=0, *, priority=0) -> Arrival:
    pod_sets = (PodSet("main", 1, None, {"cpu": cpu}, NodeNeeds()),)
    return Arrival(at_s, Workload(Pending(Queued(uid, priority, at_s), pod_sets=cpu), queue, pod_sets))


def one_queue(cpu=4000) -> QuotaTree:
    return quota_tree([NodeSpec("a", quotas={CPU: Quota(cpu)})])


def started(tree, run_s, *, holders=(), known=(), now_s=0, fair=False, groups=GROUPS) -> Simulation:
    queues = [ClusterQueue(node, groups, policies=LOWER) for node in tree.queues.values()]
    return Simulation(Scheduling(queues, holders, Settings(fair_sharing=fair), known), run_s, now_s)


def told(run: Simulation, arrivals, until_s=None) -> list[tuple[int, str, str]]:
    return [(one.at_s, one.kind, one.uid) for one in run.run(arrivals, until_s)]


def test_a_job_waits_until_another_is_finished() -> None:
    run = started(one_queue(), {"x": 10, "y": 5})
    assert told(run, [job("x", "a", 3000), job("y", "a", 3000, 2)]) == [
        (0, "arrived", "x"),
        (0, "admitted", "x"),
        (2, "arrived", "y"),
        (10, "finished", "x"),
        (10, "admitted", "y"),
        (15, "finished", "y"),
    ]
    assert [(one.uid, one.state, one.admitted_at_s) for one in run.outcomes()] == [
        ("x", "finished", 0),
        ("y", "finished", 10),
    ]


def test_an_evicted_job_starts_again_and_what_it_did_is_lost() -> None:
    run = started(one_queue(), {"low": 10, "high": 5})
    events = list(run.run([job("low", "a", 3000), job("high", "a", 3000, 4, priority=1)]))
    assert [(one.at_s, one.kind, one.uid) for one in events][3:] == [
        (4, "evicted", "low"),
        (4, "admitted", "high"),
        (9, "finished", "high"),
        (9, "admitted", "low"),
        (19, "finished", "low"),
    ]
    assert (events[3].eviction.preemptor.uid, events[3].eviction.reason) == ("high", "InClusterQueue")
    low = next(one for one in run.outcomes() if one.uid == "low")
    assert (low.evicted_count, low.lost_core_s) == (1, 12.0)


def test_those_that_hold_quota_run_for_the_rest_of_their_time() -> None:
    tree = one_queue()
    holder = Holder(Queued("h", 0, 0), tree.queues["a"], frozenset({CPU}), {CPU: 4000}, 90)
    run = started(tree, {"h": 15}, holders=[holder], now_s=100)
    assert told(run, [job("w", "a", 4000)]) == [
        (100, "arrived", "w"),
        (105, "finished", "h"),
        (105, "admitted", "w"),
    ]


def test_a_job_that_held_quota_before_comes_back_after_an_eviction_if_it_is_known() -> None:
    tree = one_queue()
    holder = Holder(Queued("h", 0, 0), tree.queues["a"], frozenset({CPU}), {CPU: 4000}, 0)
    high = job("high", "a", 4000, priority=1)
    run = started(tree, {"high": 5}, holders=[holder], known=[job("h", "a", 4000).workload])
    assert told(run, [high])[-1] == (5, "admitted", "h")
    run = started(tree, {"high": 5}, holders=[holder])
    assert told(run, [high])[-1] == (5, "finished", "high")


def test_the_time_may_end_before_the_jobs_do() -> None:
    run = started(one_queue(), {"x": 10})
    assert told(run, [job("x", "a", 3000), job("late", "a", 1, 8)], 7) == [(0, "arrived", "x"), (0, "admitted", "x")]
    assert run.now_s == 7


def test_a_workload_in_backoff_is_tried_when_that_ends() -> None:
    run = started(one_queue(), {}, now_s=100)
    one = job("w", "a", 1).workload
    held_back = one.pending._replace(requeue_at_s=130, requeued=Condition("PodsReadyTimeout", 90, status=False))
    run.state.push(one._replace(pending=held_back), 100)
    run = Simulation(run.state, {}, 100)
    assert told(run, []) == [(130, "admitted", "w")]


def test_who_waits_has_a_place_a_wait_and_what_is_missing() -> None:
    run = started(one_queue(), {})
    told(run, [job("x", "a", 3000), job("y", "a", 2000), job("z", "a", 9000, priority=-1)])
    x, y, z = sorted(run.outcomes(), key=lambda one: one.uid)
    assert x.missing is None
    assert (y.position, y.missing.amounts, y.wait.state) == (1, {CPU: 1000}, "unknown")
    assert (z.position, z.missing.amounts) == (2, {CPU: 8000})


def test_a_job_that_was_not_tried_yet_has_an_interval() -> None:
    run = started(one_queue(), {})
    told(run, [job("x", "a", 1000)])
    run.state.push(job("w", "a", 1000).workload, 0)
    run = Simulation(run.state, {}, 0)
    (waiting,) = (one for one in run.outcomes() if one.state == "waiting")
    assert waiting.wait.state == "interval"
    assert waiting.entry is None


def test_workloads_that_preempt_one_another_without_end_are_stopped(monkeypatch) -> None:
    monkeypatch.setattr(simulation, "CYCLES_MAX", 3)
    run = started(one_queue(), {f"w{at}": 1 for at in range(9)})
    told(run, [job(f"w{at}", "a", 4000, at) for at in range(9)])
    assert (run.unfinished, run.state.cycles_run) == (True, 3)
    told(run := Simulation(run.state, {}, 0), [])
    assert run.unfinished, "the state has had as many cycles before"


def test_behind_a_job_that_steps_aside_others_are_tried_at_once_but_not_in_a_strict_order() -> None:
    tree = one_queue()
    for strategy, left in (("BestEffortFIFO", [(0, "admitted", "small")]), ("StrictFIFO", [])):
        queue = ClusterQueue(tree.queues["a"], GROUPS, policies=LOWER, strategy=strategy)
        run = Simulation(Scheduling([queue]), {}, 0)
        events = told(run, [job("large", "a", 5000), job("small", "a", 1000)])
        assert [one for one in events if one[1] != "arrived"] == left
        assert run.state.cycles_run <= 4, "the same cycle again would decide the same"


def test_a_flavor_without_room_on_its_nodes_makes_way_for_the_next_one_at_once() -> None:
    tree = quota_tree([NodeSpec("a", quotas={CPU: Quota(4000), FAST: Quota(4000)})])
    queue = ClusterQueue(tree.queues["a"], (Group(frozenset({"cpu"}), ("f", "fast")),))
    run = Simulation(Scheduling([queue], settings=Settings(sizes={"f": [(1000, 2**30)]})), {}, 0)
    events = list(run.run([job("w", "a", 2000)]))
    assert [(one.kind, one.usage) for one in events] == [("arrived", {}), ("admitted", {FAST: 2000})]


def test_only_cpu_of_what_a_lost_run_held_is_lost() -> None:
    used = {FlavorResource("f", name): 2000 for name in ("apples", "cpu", "memory")}
    tree = quota_tree([NodeSpec("a", quotas={of: Quota(2000) for of in used})])
    holder = Holder(Queued("h", 0, 0), tree.queues["a"], frozenset(used), used, 0)
    run = started(tree, {}, holders=[holder], known=[job("h", "a", 2000).workload], now_s=3)
    assert told(run, [job("w", "a", 2000, priority=1)], 3)[-1] == (3, "admitted", "w")
    lost = next(one for one in run.outcomes() if one.uid == "h")
    assert (lost.state, lost.position, lost.lost_core_s) == ("waiting", 0, 6.0), "it comes back a second later"


def test_jobs_that_end_together_make_way_together() -> None:
    run = started(one_queue(), {"x": 1000, "y": 999 + 1})
    events = told(run, [job("x", "a", 2000), job("y", "a", 2000), job("w", "a", 4000, 1), job("small", "a", 2000, 2)])
    assert events[-3:] == [(1000, "finished", "x"), (1000, "finished", "y"), (1000, "admitted", "w")]


def test_an_evicted_job_is_tried_again_a_second_later_and_each_lost_run_counts() -> None:
    run = started(one_queue(), {"low": 10, "brief": 0, "last": 0})
    above = [job("brief", "a", 3000, 4, priority=1), job("last", "a", 3000, 7, priority=1)]
    events = told(run, [job("low", "a", 3500), *above])
    assert [one for one in events if one[2] == "low"] == [
        (0, "arrived", "low"),
        (0, "admitted", "low"),
        (4, "evicted", "low"),
        (5, "admitted", "low"),
        (7, "evicted", "low"),
        (8, "admitted", "low"),
        (18, "finished", "low"),
    ]
    found = {one.uid: (one.admitted_at_s, one.evicted_count, one.lost_core_s) for one in run.outcomes()}
    assert found == {"low": (8, 2, 21.0), "brief": (4, 0, 0.0), "last": (7, 0, 0.0)}


def test_what_came_or_should_have_ended_before_the_simulation_counts_as_now() -> None:
    tree = one_queue()
    holder = Holder(Queued("h", 0, 0), tree.queues["a"], frozenset({CPU}), {CPU: 1000}, 90)
    now = holder._replace(queued=Queued("i", 0, 0), reserved_at_s=None)
    run = started(tree, {"h": 5}, holders=[holder, now], now_s=100)
    assert told(run, [job("w", "a", 1000, 50)]) == [
        (100, "finished", "h"),
        (100, "arrived", "w"),
        (100, "admitted", "w"),
    ]
    assert {one.uid: one.admitted_at_s for one in run.outcomes()} == {"h": 90, "i": 100, "w": 100}


def test_what_ends_at_a_time_gives_way_to_what_comes_then_and_the_last_second_counts() -> None:
    run = started(one_queue(), {"x": 10})
    events = told(run, [job("x", "a", 4000), job("w", "a", 4000, 10)], 10)
    assert events[2:] == [(10, "finished", "x"), (10, "arrived", "w"), (10, "admitted", "w")]


def test_only_a_backoff_that_has_an_end_to_come_brings_a_workload_back() -> None:
    run = started(one_queue(), {}, now_s=1000)
    waits = Condition("PodsReadyTimeout", 90, status=False)
    for uid, at_s in (("none", None), ("past", 90), ("now", 900 + 100), ("next", 1001)):
        one = job(uid, "a", 1).workload
        run.state.push(one._replace(pending=one.pending._replace(requeue_at_s=at_s, requeued=waits)), 1000)
    assert told(Simulation(run.state, {}, 1000), []) == [(1001, "admitted", "next")]


def test_outcomes_go_by_queue_then_by_what_runs_waits_in_order_and_is_done() -> None:
    tree = quota_tree([NodeSpec(name, quotas={CPU: Quota(1000)}) for name in "ab"])
    run = started(tree, {"w": 1})
    jobs = [
        job("of-b", "b", 1000),
        job("w", "a", 1000),
        job("x", "a", 1000),
        job("z", "a", 1000),
        job("y", "a", 1000, 1),
    ]
    told(run, jobs)
    assert [(one.uid, one.state, one.position) for one in run.outcomes()] == [
        ("x", "running", 0),
        ("z", "waiting", 1),
        ("y", "waiting", 2),
        ("w", "finished", 0),
        ("of-b", "running", 0),
    ]


def test_admissions_of_the_last_hour_make_the_interval() -> None:
    run = started(one_queue(), {f"w{at}": 1 for at in range(4)})
    told(run, [job(f"w{at}", "a", 1000, at) for at in range(4)], 3601)
    run.state.push(job("late", "a", 1000).workload, 3601)
    waits = {}
    for now_s in (3599, 3600, 3601, 7200):
        run.now_s = now_s
        run._queue_of["late"] = "a"
        waits[now_s] = next(one.wait for one in run.outcomes() if one.uid == "late")
    assert waits == {now_s: wait(1, count) for now_s, count in ((3599, 4), (3600, 3), (3601, 2), (7200, 0))}


def test_a_job_that_is_held_up_waits_for_the_reason_of_its_last_try() -> None:
    run = started(one_queue(), {})
    told(run, [job("x", "a", 3000), job("y", "a", 2000)])
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
