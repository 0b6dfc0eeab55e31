"""Who shall leave a node, by what a sample says of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.schemas.policy.effective import effective
from slacktide.schemas.policy.idle import lacking
from slacktide.schemas.qos import is_best_effort
from slacktide.schemas.sample import BeCpu, BeCpuWindow, EvictState, NodeSample, NodeUse, PodUse
from slacktide.streams.decisions.evict.node_evict import (
    CPU_COOL_MS,
    CPU_RULES,
    MEMORY_COOL_MS,
    MEMORY_RULES,
    Eviction,
    evictions,
)
from testbed.evict_cases import pods_allowing
from testbed.policies import policy_from
from testbed.samples import sample

GIB = 1 << 30
FACTS = NodeFacts(
    name="node-1",
    capacity=Resources(cpu_milli=10_000, mem_bytes=100 * GIB),
    allocatable=Resources(cpu_milli=9_000, mem_bytes=90 * GIB, batch_cpu_milli=4_000, batch_mem_bytes=40 * GIB),
)
SERVICE = Pod(uid="service", namespace="shop", name="service", qos_label="LS", kube_qos="Burstable", priority=9500)


def batch(name: str, **more: Any) -> Pod:
    """A best-effort pod that lets itself be evicted."""
    fields = {"qos_label": "BE", "priority": 5500, "eviction_enabled": True}
    fields["requests"] = Resources(batch_cpu_milli=3_000, batch_mem_bytes=30 * GIB)
    return Pod(uid=name, namespace="jobs", name=name, **fields | more)


A, B, C = batch("a"), batch("b"), batch("c")


def use(uid: str, gib: int | None = 10, cpu_milli: int | None = 2_000, *, best_effort: bool = True) -> PodUse:
    mem_bytes = None if gib is None else gib * GIB
    return PodUse(uid=uid, cpu_milli=cpu_milli, mem_bytes=mem_bytes, best_effort_group=best_effort)


def short_of(
    memory_gib: int | None = 10, cpu_milli: int | None = 1_000, evict: EvictState | None = None, **more: Any
) -> NodeSample:
    """A sample of a node that uses so much of its 100 GiB and 10 CPUs."""
    fields = {
        "use": NodeUse(cpu_milli=cpu_milli, mem_bytes=None if memory_gib is None else memory_gib * GIB),
        "pod_use": [use("service", best_effort=False), use("a", 5), use("b", 10), use("c", 20)],
        "evict": evict or EvictState(),
    }
    return sample(1, **fields | more)


def thresholds(**said: Any) -> Policy:
    return policy_from(threshold={"clusterStrategy": {"enable": True, **said}})


MEMORY = thresholds(memoryEvictThresholdPercent=70, memoryEvictLowerPercent=60)
CPU = thresholds(
    cpuEvictThresholdPercent=80,
    cpuEvictLowerPercent=70,
    evictEnabledPriorityThreshold=5999,
    memoryEvictThresholdPercent=100,
)
SOLD = thresholds(
    memoryAllocatableEvictThresholdPercent=100,
    memoryAllocatableEvictLowerPercent=80,
    allocatableEvictPriorityThreshold=5999,
)
SATISFIED = thresholds(cpuEvictBESatisfactionLowerPercent=40, cpuEvictBESatisfactionUpperPercent=70)
ALL = thresholds(
    memoryEvictThresholdPercent=70,
    memoryAllocatableEvictThresholdPercent=100,
    memoryAllocatableEvictLowerPercent=80,
    cpuEvictBESatisfactionLowerPercent=40,
    cpuEvictBESatisfactionUpperPercent=80,
    cpuEvictThresholdPercent=80,
    cpuAllocatableEvictThresholdPercent=100,
    cpuAllocatableEvictLowerPercent=80,
    evictEnabledPriorityThreshold=9999,
    allocatableEvictPriorityThreshold=7999,
)
STARVED = BeCpu(usage_milli=990, request_milli=9_000, limit_milli=1_000)
WINDOW = BeCpuWindow(average=STARVED, current=STARVED, samples=60, interval_s=1)


def named(taken: NodeSample, *pods: Pod, policy: Policy = MEMORY, facts: NodeFacts = FACTS) -> list[str]:
    return [one.pod.name for one in evictions(taken, facts, [SERVICE, *(pods or (A, B, C))], policy)]


def test_memory_over_its_threshold_names_whom_the_rule_wants_the_largest_first() -> None:
    """85% - 60% of 100 GiB: the 20 of c and the 10 of b."""
    assert named(short_of(85)) == ["c", "b"]
    assert named(short_of(70)) == ["c"]
    assert named(short_of(69)) == []


def test_an_eviction_says_rule_threshold_and_observed_value_and_what_its_victim_frees() -> None:
    first, second = evictions(short_of(85), FACTS, [SERVICE, A, B, C], MEMORY)

    assert (first.rule, first.bound, first.pod) == ("BEMemoryEvict", "formula", C)
    assert first.terms == {
        "capacity_bytes": 100 * GIB,
        "threshold_pct": 70,
        "lower_pct": 60,
        "used_bytes": 85 * GIB,
        "used_pct": 85,
        "release_bytes": 25 * GIB,
        "victim_used_mem_bytes": 20 * GIB,
    }
    assert second.terms == first.terms | {"victim_used_mem_bytes": 10 * GIB}


def test_cpu_over_its_threshold_names_by_use() -> None:
    (one,) = evictions(short_of(cpu_milli=8_500), FACTS, [SERVICE, A, B, C], CPU)

    assert (one.rule, one.pod.name, one.terms["used_pct"], one.terms["victim_used_cpu_milli"]) == (
        "CPUEvict", "a", 85, 2_000,
    )  # fmt: skip


def test_cpu_over_a_window_is_what_the_node_remembers_of_it() -> None:
    window = replace(CPU.resource_threshold, cpu_evict_time_window_s=60)
    policy = replace(CPU, resource_threshold=window)

    def over(node_milli: float | None, now_milli: int) -> list[str]:
        be_cpu = None if node_milli is None else replace(WINDOW, node_usage_milli=node_milli)
        return named(short_of(cpu_milli=now_milli, evict=EvictState(be_cpu=be_cpu)), policy=policy)

    assert over(8_500.5, 1_000) == ["a"]
    assert over(7_999.9, 9_900) == []
    assert over(None, 9_900) == []


def test_starved_best_effort_pods_make_room_for_each_other() -> None:
    starved = short_of(evict=EvictState(be_cpu=WINDOW))
    (one, two) = evictions(starved, FACTS, [SERVICE, A, B, C], SATISFIED)

    assert [one.rule, two.rule] == ["BECPUEvict"] * 2
    assert one.terms["average_satisfied_ratio"] == 1_000 / 9_000
    assert (one.terms["release_milli"], one.terms["victim_request_batch_cpu_milli"]) == (5_299, 3_000)
    assert named(short_of(), policy=SATISFIED) == [], "where nothing was measured nobody goes"


def test_what_was_requested_beyond_what_is_sold_is_taken_back() -> None:
    """90 of 40 GiB, down to 32."""
    assert named(short_of(), policy=SOLD) == ["a", "b"]
    (first, _) = evictions(short_of(), FACTS, [SERVICE, A, B, C], SOLD)
    assert (first.terms["allocatable_bytes"], first.terms["victim_request_batch_mem_bytes"]) == (40 * GIB, 30 * GIB)


def test_a_pod_that_is_over_asks_for_nothing() -> None:
    over = [replace(pod, phase="Succeeded") for pod in (B, C)]

    assert named(short_of(), A, *over, policy=SOLD) == []


@pytest.mark.parametrize(
    ("pod", "of", "may_go"),
    [
        pytest.param(A, use("a", 50), True, id="labelled, and in the group"),
        pytest.param(A, use("a", 50, best_effort=False), False, id="labelled, and elsewhere"),
        pytest.param(replace(A, qos_label=None), use("a", 50), True, id="BestEffort to Kubernetes"),
        pytest.param(replace(A, qos_label="LS", kube_qos="Burstable"), use("a", 50), False, id="only in the group"),
        pytest.param(replace(A, qos_label="LS", kube_qos="BestEffort"), use("a", 50), True, id="LS and BestEffort"),
        pytest.param(A, use("other", 50), False, id="the kernel does not have it"),
    ],
)
def test_only_best_effort_pods_in_the_best_effort_group_may_go(pod: Pod, of: PodUse, *, may_go: bool) -> None:
    """Whatever the policy says; best-effort features ask for the label besides."""
    taken = short_of(90, pod_use=[use("service", best_effort=False), of])

    assert (named(taken, pod, policy=ALL) == ["a"]) == may_go


def test_what_the_kernel_is_rid_of_asks_for_nothing_and_what_is_about_to_run_does() -> None:
    """A pod list may name who is dead for long: nobody else pays for it."""
    taken = short_of(pod_use=[use("a")])

    assert named(taken, A, B, C, policy=SOLD) == []
    assert named(taken, A, replace(B, phase="Pending"), policy=SOLD) == ["a"]


def test_who_does_not_end_though_killed_is_nobodys_victim_and_releases_nothing() -> None:
    assert named(short_of(85, evict=EvictState(stuck=["c"]))) == ["b", "a"]


def test_who_is_kept_by_the_api_server_goes_after_all_others_and_goes_if_they_are_not_enough() -> None:
    """25 GiB are wanted: c's 20 and b's 10 were enough, and so are c's and those of the other two."""
    assert named(short_of(85)) == ["c", "b"]
    assert named(short_of(85, evict=EvictState(kept=["c"])))[-1] == "c"
    assert set(named(short_of(85, evict=EvictState(kept=["a", "b", "c"])))) == {"c", "b"}


def test_who_may_not_go_still_counts_for_what_was_requested() -> None:
    taken = short_of(pod_use=[use("a"), use("b", best_effort=False), use("c", best_effort=False)])

    assert named(taken, policy=SOLD) == ["a"]
    assert named(taken, A, policy=SOLD) == []


@pytest.mark.parametrize(
    ("state", "policy", "who"),
    [
        pytest.param(EvictState(since_mem_ms=MEMORY_COOL_MS - 1), MEMORY, [], id="memory, too soon"),
        pytest.param(EvictState(since_mem_ms=MEMORY_COOL_MS), MEMORY, ["c", "b"], id="memory, at last"),
        pytest.param(EvictState(since_cpu_ms=0), MEMORY, ["c", "b"], id="memory does not wait for CPU"),
        pytest.param(EvictState(since_cpu_ms=CPU_COOL_MS - 1), CPU, [], id="CPU, too soon"),
        pytest.param(EvictState(since_cpu_ms=CPU_COOL_MS), CPU, ["a"], id="CPU, at last"),
        pytest.param(EvictState(since_mem_ms=0), CPU, ["a"], id="CPU does not wait for memory"),
    ],
)
def test_nobody_is_named_while_the_last_eviction_is_young(state: EvictState, policy: Policy, who: list[str]) -> None:
    assert (MEMORY_COOL_MS, CPU_COOL_MS) == (4_000, 20_000)
    assert named(short_of(85, 8_500, state), policy=policy) == who


def test_who_is_dying_counts_as_released_and_is_not_named_again() -> None:
    """25 GiB are wanted: c's 20 are on their way, so that one more goes; with b's, too, nobody."""
    assert named(short_of(85, evict=EvictState(dying=["c"]))) == ["b"]
    assert named(short_of(85, evict=EvictState(dying=["c", "b"]))) == []
    assert named(short_of(85, evict=EvictState(dying=["a"]))) == ["c"]


def test_who_is_dying_counts_though_another_would_go_before_it() -> None:
    """Half of the memory of c is back, so that b has more of it now: yet the other half is enough."""
    halfway = short_of(70, pod_use=[use("a", 5), use("b", 11), use("c", 10)], evict=EvictState(dying=["c"]))

    assert named(halfway) == []


@pytest.mark.parametrize("policy", [SOLD, SATISFIED])
def test_who_is_dead_counts_for_its_request_until_the_pod_list_is_rid_of_it(policy: Policy) -> None:
    gone = short_of(pod_use=[use("a"), use("b")], evict=EvictState(be_cpu=WINDOW))

    assert named(gone, policy=policy)
    assert named(replace(gone, evict=replace(gone.evict, dying=["c", "b"])), policy=policy) == []


def test_one_pod_is_named_once_and_counts_for_both() -> None:
    policy = replace(
        MEMORY,
        resource_threshold=replace(
            MEMORY.resource_threshold, cpu_evict_threshold_pct=80, evict_enabled_priority_threshold=5_999
        ),
    )
    found = evictions(short_of(70, 8_100), FACTS, [SERVICE, A, B, C], policy)

    assert [(one.pod.name, one.rule) for one in found] == [("c", "BEMemoryEvict")]
    assert [one.pod.name for one in evictions(short_of(10, 8_100), FACTS, [SERVICE, A, B, C], policy)] == ["a"]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"taken": short_of(None, None)}, id="no use known"),
        pytest.param({"facts": replace(FACTS, capacity=Resources())}, id="no capacity known"),
        pytest.param({"pods": []}, id="no pods"),
        pytest.param({"policy": DEFAULT}, id="nothing configured"),
        pytest.param({"policy": thresholds(memoryEvictThresholdPercent=100)}, id="enabled, and not reached"),
        pytest.param(
            {"policy": policy_from(threshold={"clusterStrategy": {"memoryEvictThresholdPercent": 1}})}, id="not enabled"
        ),
        pytest.param(
            {
                "policy": thresholds(
                    evictEnabledPriorityThreshold=9999, cpuEvictThresholdPercent=99, memoryEvictThresholdPercent=100
                )
            },
            id="a priority, and nothing reached",
        ),
    ],
)
def test_what_is_not_known_or_not_asked_for_evicts_nobody(changes: dict) -> None:
    given_ = {"taken": short_of(99, 9_800), "facts": FACTS, "pods": [A, B, C], "policy": MEMORY} | changes

    assert evictions(given_["taken"], given_["facts"], given_["pods"], given_["policy"]) == ()


def test_a_node_strategy_evicts_on_its_nodes_alone() -> None:
    policy = policy_from(
        threshold={
            "clusterStrategy": {"enable": True, "memoryEvictThresholdPercent": 90},
            "nodeStrategies": [
                {"name": "spot", "nodeSelector": {"matchLabels": {"pool": "spot"}}, "memoryEvictThresholdPercent": 70}
            ],
        }
    )

    assert named(short_of(85), policy=policy) == []
    assert named(short_of(85), policy=policy, facts=replace(FACTS, labels={"pool": "spot"})) == ["c"]


def test_free_pods_go_before_batch_pods_and_these_before_mid_pods() -> None:
    """Whatever their numbers: a label may name another class."""
    free = replace(A, priority=6_000, priority_class_label="koord-free")
    mid = replace(C, priority=4_000, priority_class_label="koord-mid")

    assert named(short_of(100), mid, B, free) == ["a", "b", "c"]


amounts = st.none() | st.integers(0, 100)
FEATURES = sorted(MEMORY_RULES | CPU_RULES)


@st.composite
def nodes(draw: st.DrawFn) -> tuple[NodeSample, NodeFacts, list[Pod]]:
    """Any pods, listed or not, in the kernel or not, on a node of any use that evicted at any time."""
    listed = draw(st.lists(pods_allowing(*FEATURES), max_size=6))
    pods = [replace(pod, uid=f"uid-{at}") for at, pod in enumerate(listed)]
    uids = [f"uid-{at}" for at in range(8)]
    be = st.builds(BeCpu, **dict.fromkeys(BeCpu.__struct_fields__, st.floats(0, 20_000)))
    window = st.builds(
        BeCpuWindow, average=be, current=be, samples=st.integers(0, 60), interval_s=st.just(1),
        node_usage_milli=st.none() | st.floats(0, 10_000),
    )  # fmt: skip
    taken = short_of(
        draw(amounts),
        draw(st.none() | st.integers(0, 10_000)),
        EvictState(
            since_mem_ms=draw(st.none() | st.integers(0, 8_000)),
            since_cpu_ms=draw(st.none() | st.integers(0, 40_000)),
            dying=draw(st.lists(st.sampled_from(uids), max_size=3)),
            stuck=draw(st.lists(st.sampled_from(uids), max_size=1)),
            be_cpu=draw(st.none() | window),
        ),
        pod_use=[
            use(uid, draw(amounts), draw(st.none() | st.integers(0, 3_000)), best_effort=draw(st.booleans()))
            for uid in draw(st.lists(st.sampled_from(uids), unique=True))
        ],
    )
    return taken, draw(st.sampled_from([FACTS, replace(FACTS, capacity=Resources())])), pods


@settings(max_examples=60, deadline=None)
@given(node=nodes())
def test_who_is_never_named(node: tuple[NodeSample, NodeFacts, list[Pod]]) -> None:
    taken, facts, pods = node
    found = evictions(taken, facts, pods, ALL)

    uids = [one.pod.uid for one in found]
    assert len(uids) == len(set(uids)), "nobody twice"
    assert not set(uids) & {*taken.evict.dying, *taken.evict.stuck}
    in_group = {one.uid for one in taken.pod_use if one.best_effort_group}
    for one in found:
        assert is_best_effort(one.pod)
        assert one.pod.uid in in_group
        assert one.pod.phase in ("Running", "Pending")
        cool = taken.evict.since_mem_ms if one.rule in MEMORY_RULES else taken.evict.since_cpu_ms
        assert cool is None or cool >= (MEMORY_COOL_MS if one.rule in MEMORY_RULES else CPU_COOL_MS)
        assert all(isinstance(value, int | float) for value in one.terms.values())


@settings(max_examples=60, deadline=None)
@given(node=nodes())
def test_the_same_is_named_again_after_a_way_over_the_wire(node: tuple[NodeSample, NodeFacts, list[Pod]]) -> None:
    """So stream and guard, which see copies, name the same."""

    def sent(message: Any, kind: Any) -> Any:
        return msgspec.json.decode(msgspec.json.encode(message), type=kind)

    taken, facts, pods = node
    copies = sent(taken, NodeSample), sent(facts, NodeFacts), sent(pods, list[Pod]), sent(ALL, Policy)

    assert evictions(*copies) == evictions(taken, facts, pods, ALL)


@settings(max_examples=60, deadline=None)
@given(node=nodes())
def test_once_all_that_were_named_are_dying_nobody_more_is(node: tuple[NodeSample, NodeFacts, list[Pod]]) -> None:
    """Even without a cool-down: what they use is still in the node's use, and counts as released."""
    taken, facts, pods = node
    first = evictions(taken, facts, pods, ALL)
    state = replace(taken.evict, dying=[*taken.evict.dying, *(one.pod.uid for one in first)])

    assert evictions(replace(taken, evict=state), facts, pods, ALL) == ()


@given(
    said=st.dictionaries(
        st.sampled_from(["memoryEvictThresholdPercent", "cpuEvictThresholdPercent", "evictEnabledPriorityThreshold"]),
        st.sampled_from([5, 99]),
    )
)
def test_what_names_a_victim_is_what_effective_says_acts(said: dict) -> None:
    policy = thresholds(**said)
    acts = {feature.name for feature, lack in lacking(effective(policy, FACTS)).items() if not lack}
    found: tuple[Eviction, ...] = evictions(short_of(99, 9_990), FACTS, [replace(A, priority=5)], policy)

    assert {one.rule for one in found} <= acts
    assert bool(found) == bool(acts & (MEMORY_RULES | CPU_RULES))
