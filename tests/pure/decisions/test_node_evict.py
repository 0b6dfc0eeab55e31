"""Who shall leave a node, by what a sample says of it."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from slacktide.schemas.inventory import NodeFacts, Pod, Resources
from slacktide.schemas.policy import Policy
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
from testbed.vectors import stated_test

test_cases = stated_test("node_evict", evictions)

GIB = 1 << 30
FACTS = NodeFacts(
    name="node-1",
    capacity=Resources(cpu_milli=10_000, mem_bytes=100 * GIB),
    allocatable=Resources(cpu_milli=9_000, mem_bytes=90 * GIB, batch_cpu_milli=4_000, batch_mem_bytes=40 * GIB),
)
BATCH = Pod(
    uid="a",
    namespace="jobs",
    name="a",
    qos_label="BE",
    priority=5,
    eviction_enabled=True,
    requests=Resources(batch_cpu_milli=3_000, batch_mem_bytes=30 * GIB),
)


def use(uid: str, gib: int | None, cpu_milli: int | None = 2_000, *, best_effort: bool = True) -> PodUse:
    mem_bytes = None if gib is None else gib * GIB
    return PodUse(uid=uid, cpu_milli=cpu_milli, mem_bytes=mem_bytes, best_effort_group=best_effort)


def short_of(memory_gib: int | None, cpu_milli: int | None, evict: EvictState | None = None, **more: Any) -> NodeSample:
    """A sample of a node that uses so much of its 100 GiB and 10 CPUs."""
    fields = {
        "use": NodeUse(cpu_milli=cpu_milli, mem_bytes=None if memory_gib is None else memory_gib * GIB),
        "pod_use": [use("service", 10, best_effort=False), use("a", 5), use("b", 10), use("c", 20)],
        "evict": evict or EvictState(),
    }
    return sample(1, **fields | more)


def thresholds(**said: Any) -> Policy:
    return policy_from(threshold={"clusterStrategy": {"enable": True, **said}})


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


@given(node=nodes())
def test_the_same_is_named_again_after_a_way_over_the_wire(node: tuple[NodeSample, NodeFacts, list[Pod]]) -> None:
    """So stream and guard, which see copies, name the same."""

    def sent(message: Any, kind: Any) -> Any:
        return msgspec.json.decode(msgspec.json.encode(message), type=kind)

    taken, facts, pods = node
    copies = sent(taken, NodeSample), sent(facts, NodeFacts), sent(pods, list[Pod]), sent(ALL, Policy)

    assert evictions(*copies) == evictions(taken, facts, pods, ALL)


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
    found: tuple[Eviction, ...] = evictions(short_of(99, 9_990), FACTS, [BATCH], policy)

    assert {one.rule for one in found} <= acts
    assert bool(found) == bool(acts & (MEMORY_RULES | CPU_RULES))
