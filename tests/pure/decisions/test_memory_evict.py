"""Which pods leave a node when memory runs short."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import Calculation
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.streams.decisions.evict.evict_candidates import EvictPod, Order
from slacktide.streams.decisions.evict.evict_tasks import Evictions, EvictNode, EvictTask
from slacktide.streams.decisions.evict.memory_evict import memory_evict
from testbed.evict_cases import any_pods, be, distinct, evicted, gone, names, sold

BE, REQUESTED, USED = "BEMemoryEvict", "MemoryAllocatableEvict", "MemoryEvict"
FEATURES = (BE, REQUESTED, USED)
ALL = ResourceThreshold(
    mem_evict_threshold_pct=80,
    mem_evict_lower_pct=60,
    mem_allocatable_evict_threshold_pct=80,
    mem_allocatable_evict_lower_pct=50,
    evict_enabled_priority_threshold=7000,
    allocatable_evict_priority_threshold=7999,
)


def decided(
    *pods: EvictPod,
    features: tuple[str, ...] = FEATURES,
    used: int | None = 90,
    capacity: int = 100,
    allocatable: Resources = Resources(),  # noqa: B008 - immutable
    free_first: bool = False,
    **policy: Any,
) -> Evictions:
    """On a node where 30 bytes are to be released by use."""
    node = EvictNode(capacity=capacity, used=used, allocatable=allocatable, pods=pods)
    thresholds = msgspec.structs.replace(ALL, **policy)
    order = Order(free_first=free_first, sub_priority=thresholds.sub_priority_enable)
    return memory_evict(node, features=features, policy=thresholds, order=order)


def only(feature: str, *pods: EvictPod, **more: Any) -> EvictTask:
    """The one task of the feature."""
    (task,) = decided(*pods, features=(feature,), **more).tasks
    return task


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_node_without_capacity_is_left_alone(capacity: int) -> None:
    done = decided(be("a", used=90), capacity=capacity)

    assert (done.tasks, done.victims) == ((), ())
    assert [(because.of, because.bound, because.terms) for because in done.because] == [
        ("evicted_pods", "no_capacity", {"evicted_pods": 0})
    ]


def test_a_node_of_one_byte_is_not() -> None:
    assert len(decided(capacity=1).tasks) == 3


@pytest.mark.parametrize("enabled", [FEATURES, FEATURES[::-1], (USED, "Another", BE), ()])
def test_the_enabled_features_have_their_turns_in_a_fixed_order(enabled: tuple[str, ...]) -> None:
    done = decided(features=enabled)

    assert [task.feature for task in done.tasks] == [name for name in FEATURES if name in enabled]


@pytest.mark.parametrize(
    ("unset", "invalid"),
    [
        ("mem_evict_threshold_pct", {BE, USED}),
        ("mem_allocatable_evict_threshold_pct", {REQUESTED}),
        ("mem_allocatable_evict_lower_pct", {REQUESTED}),
        ("evict_enabled_priority_threshold", {USED}),
        ("allocatable_evict_priority_threshold", {REQUESTED}),
    ],
)
def test_what_each_feature_must_know(unset: str, invalid: set[str]) -> None:
    done = decided(**{unset: None})

    assert {task.feature for task in done.tasks if task.release.status == "invalid_config"} == invalid


def test_a_missing_priority_is_seen_beside_the_thresholds_that_are_there() -> None:
    (because,) = only(USED, evict_enabled_priority_threshold=None).release.because

    assert because.terms == {"threshold_pct": 80, "lower_pct": 60}


def test_the_lower_percent_of_use_is_two_below_the_threshold_unless_said() -> None:
    for feature in (BE, USED):
        assert only(feature, mem_evict_lower_pct=None).release.amounts == {"mem_bytes": 12}


def test_who_goes_by_use() -> None:
    pods = [
        be("prod", qos="LS", priority=9500, used=50),
        be("service", qos="LS", priority=100, used=10),
        be("batch", used=15),
        be("small", used=5),
        be("idle", used=0),
        be("unknown"),
    ]

    assert names(only(BE, *pods).candidates) == ["batch", "small", "unknown", "idle"]
    assert names(only(USED, *pods).candidates) == ["service", "batch", "small"]
    assert evicted(decided(*pods, features=(BE,))) == ["batch", "small", "unknown", "idle"]
    assert evicted(decided(*pods, features=(USED,))) == ["service", "batch", "small"]


def test_a_victims_memory_counts_once_not_a_thousandfold() -> None:
    assert evicted(decided(*(be(name, used=10) for name in "abcd"), features=(USED,))) == ["a", "b", "c"]


def test_requested_memory_is_released_by_those_whose_class_is_short() -> None:
    """Mid pods requested 90 of 100: what batch and production pods would free helps nobody."""
    pods = [
        be("batch", batch_mem=50, used=1),
        be("service", qos="LS", priority=100, mem=50, used=1),
        be("small", priority=7000, mid_mem=30, used=1),
        be("large", priority=7000, mid_mem=60, used=1),
        be("nothing", priority=7000, used=1),
        be("unmeasured", priority=7000, mid_mem=0),
    ]

    task = only(REQUESTED, *pods, allocatable=Resources(mid_mem_bytes=100, batch_mem_bytes=100, mem_bytes=100))

    assert task.release.amounts == {"mid_mem_bytes": 40}
    assert names(task.candidates) == ["large", "small"]


@pytest.mark.parametrize(
    "pod",
    [
        be("service", qos="LS", priority=100, mem=90, used=1),
        be("test", priority=3500, mem=90, used=1),
    ],
)
def test_production_and_free_pods_of_low_priority_free_native_memory(pod: EvictPod) -> None:
    done = decided(pod, features=(REQUESTED,), allocatable=Resources(mem_bytes=100))

    assert evicted(done) == [pod.pod.name]
    assert done.because[-1].terms == {
        "request_mem_target_bytes": 40,
        "request_mem_released_bytes": 90,
        "evicted_pods": 1,
    }


def test_an_amount_of_0_is_told_and_evicts_nobody() -> None:
    task = only(REQUESTED, be("a", used=1))

    assert (task.release.status, task.release.amounts, task.candidates) == ("release", {"batch_mem_bytes": 0}, ())


def test_one_short_class_does_not_cost_the_pods_of_another() -> None:
    """Batch is short by little and mid by much: only then would all batch pods go before the first mid pod."""
    batch = [be(name, batch_mem=30, used=1) for name in "abc"]
    mid = [be(name, priority=7000, mid_mem=45, used=1) for name in "xy"]

    done = decided(*batch, *mid, features=(REQUESTED,), allocatable=Resources(batch_mem_bytes=100, mid_mem_bytes=90))

    assert done.tasks[0].release.amounts == {"batch_mem_bytes": 40, "mid_mem_bytes": 45}
    assert evicted(done) == ["a", "b", "x"]


def test_features_share_what_is_released() -> None:
    """BEMemoryEvict's victims use 30, all that MemoryEvict wants too, and requested half of what is to be released."""
    pods = [be("a", batch_mem=45, used=20), be("b", batch_mem=45, used=10), be("c", used=9), be("d", used=8)]

    done = decided(*pods, allocatable=Resources(batch_mem_bytes=100), mem_allocatable_evict_lower_pct=10)

    assert [(victim.feature, victim.pod.pod.name) for victim in done.victims] == [(BE, "a"), (BE, "b")]
    assert done.because[-1].bound == "released"
    assert done.because[-1].terms == {
        "used_mem_target_bytes": 30,
        "used_mem_released_bytes": 30,
        "request_batch_mem_target_bytes": 80,
        "request_batch_mem_released_bytes": 90,
        "evicted_pods": 2,
    }


def test_a_later_feature_takes_what_is_still_missing() -> None:
    pods = [be("a", used=20), be("service", qos="LS", priority=100, used=5), be("b", qos="LS", used=7)]

    done = decided(*pods, features=(BE, USED))

    assert [(victim.feature, victim.pod.pod.name) for victim in done.victims] == [
        (BE, "a"),
        (USED, "service"),
        (USED, "b"),
    ]


@pytest.mark.parametrize("feature", FEATURES)
def test_the_switches_reach_every_feature_they_are_for(feature: str) -> None:
    pods = [
        be("a", batch_mem=9, mem=9, used=9),
        be("b", batch_mem=5, mem=5, used=5, sub_priority=5100),
        be("free", priority=9000, band="koord-free", mem=9, used=1),
    ]
    always_by_sub_priority = feature != BE
    highest = {"evict_enabled_priority_threshold": 9999, "allocatable_evict_priority_threshold": 7999}
    if feature == REQUESTED:
        pods[2] = be("free", priority=7999, band="koord-free", mem=9, used=1)

    plain = only(feature, *pods, **highest)
    switched = only(feature, *pods, **highest, sub_priority_enable=True, free_first=True)

    assert names(plain.candidates) == (["b", "a", "free"] if always_by_sub_priority else ["a", "b", "free"])
    assert names(switched.candidates) == ["free", "b", "a"]


def test_each_feature_says_why_then_the_outcome() -> None:
    done = decided(be("a", batch_mem=9, used=9))

    assert [(because.of, because.bound) for because in done.because] == [
        ("BEMemoryEvict/mem_bytes", "formula"),
        ("MemoryAllocatableEvict/batch_mem_bytes", "not_sold"),
        ("MemoryEvict/mem_bytes", "formula"),
        ("evicted_pods", "too_few_candidates"),
    ]


features = st.lists(st.sampled_from(FEATURES), unique=True).map(tuple)
nodes = st.fixed_dictionaries({"used": st.sampled_from([90, 101, 130, 180, 79, None]), "allocatable": sold})


@given(pods=any_pods(*FEATURES), feature=st.sampled_from(FEATURES), node=nodes)
def test_no_victim_too_many(pods: list[EvictPod], feature: str, node: dict) -> None:
    """Without the last victim, or the last of any resource, something that is wanted is not released."""
    done = decided(*pods, features=(feature,), **node)
    (task,) = done.tasks
    order = {pod: at for at, pod in enumerate(task.candidates)}
    places = [order[victim.pod] for victim in done.victims]

    assert places == sorted(places)
    if not places:
        return
    last = done.victims[-1].pod
    (resource,) = task.frees(last)
    before = [pod for pod in task.candidates[: order[last]] if pod.already_evicted or order[pod] in places]
    assert sum(task.frees(pod).get(resource, 0) for pod in before) < task.release.amounts[resource]


@given(pods=any_pods(*FEATURES), enabled=features, node=nodes, free_first=st.booleans(), sub=st.booleans())
def test_who_is_never_a_victim(
    pods: list[EvictPod], enabled: tuple[str, ...], node: dict, *, free_first: bool, sub: bool
) -> None:
    done = decided(*pods, features=enabled, **node, free_first=free_first, sub_priority_enable=sub)

    for victim in done.victims:
        one = victim.pod
        assert one.pod.phase in ("Running", "Pending")
        assert not one.already_evicted
        assert not one.spared
        assert one.pod.eviction_features is None or victim.feature in one.pod.eviction_features
        if victim.feature == BE:
            assert one.pod.qos_label == "BE"
        else:
            assert one.pod.eviction_enabled
            assert (one.pod.priority or 0) <= 7999


@given(pods=any_pods(*FEATURES), feature=st.sampled_from(FEATURES), node=nodes, pct=st.integers(0, 120))
def test_raising_a_threshold_adds_no_victim(pods: list[EvictPod], feature: str, node: dict, pct: int) -> None:
    which = f"mem_{'allocatable_' if feature == REQUESTED else ''}evict"
    lower = -1 if feature == REQUESTED else None

    def victims(threshold_pct: int) -> set[EvictPod]:
        thresholds = {f"{which}_threshold_pct": threshold_pct, f"{which}_lower_pct": lower}
        return {victim.pod for victim in decided(*pods, features=(feature,), **node, **thresholds).victims}

    assert victims(pct + 1) <= victims(pct)


@given(data=st.data(), pods=any_pods(*FEATURES), enabled=features, node=nodes)
@settings(max_examples=60)
def test_where_nothing_ties_the_order_of_the_pods_does_not_matter(
    data: st.DataObject, pods: list[EvictPod], enabled: tuple[str, ...], node: dict
) -> None:
    pods = distinct(pods)
    more = {"features": enabled, "capacity": 1000, "allocatable": node["allocatable"], "used": 1200}

    shuffled = decided(*data.draw(st.permutations(pods)), **more)
    as_given = decided(*pods, **more)

    assert evicted(shuffled) == evicted(as_given)
    assert shuffled.because == as_given.because


@given(pods=any_pods(*FEATURES), enabled=features, node=nodes)
def test_asked_again_while_the_victims_are_still_there_it_finds_no_more(
    pods: list[EvictPod], enabled: tuple[str, ...], node: dict
) -> None:
    first = decided(*pods, features=enabled, **node)

    again = decided(*gone(pods, first), features=enabled, **node)

    assert again.victims == ()


@given(pods=any_pods(*FEATURES), enabled=features, node=nodes)
def test_the_terms_end_in_the_amounts_to_release(pods: list[EvictPod], enabled: tuple[str, ...], node: dict) -> None:
    for task in decided(*pods, features=enabled, **node).tasks:
        told = {
            because.of: because.terms["release_bytes"]
            for because in task.release.because
            if task.release.amounts and "release_bytes" in because.terms
        }
        assert told == {f"{task.feature}/{resource}": amount for resource, amount in task.release.amounts.items()}


calc = Calculation("memory_evict", explain=True)


def answer(**fields: Any) -> dict[str, Any]:
    return json.loads(calc.answer(json.dumps({"name": "x", "input": fields})).line)


def test_a_case_needs_only_the_capacity_and_takes_null_for_the_rest() -> None:
    assert answer(node_capacity_memory_bytes=100)["output"] == {"tasks": [], "evicted_in_order": []}
    nothing = dict.fromkeys(
        ("enabled_features", "node_allocatable", "node_memory_used_bytes", "pods", "strategy", "unknown")
    )
    assert answer(node_capacity_memory_bytes=0, **nothing)["output"] == {"tasks": [], "evicted_in_order": []}


def test_an_absent_threshold_is_not_set_whatever_the_nodes_default() -> None:
    output = answer(node_capacity_memory_bytes=100, node_memory_used_bytes=99, enabled_features=[BE])["output"]

    assert output["tasks"] == [{"feature": BE, "status": "invalid_config"}]


def test_a_case_of_all_features_and_switches_in_the_cases_own_words() -> None:
    case = {
        "enabled_features": list(FEATURES),
        "node_capacity_memory_bytes": 100,
        "node_memory_used_bytes": 90,
        "node_allocatable": {"batch_memory_bytes": 100, "memory_bytes": 100},
        "pods": [
            {"name": "low", "qos_class": "BE", "priority": 5000, "requests": {"batch_memory_bytes": 50},
             "memory_used_bytes": 1, "eviction_enabled": True, "allowed_eviction_features": ["MemoryAllocatableEvict"],
             "eviction_priority": None, "already_evicted": None, "sub_priority": None, "usage": None},
            {"name": "late", "qos_class": "BE", "priority": 5500, "requests": {"batch_memory_bytes": 50},
             "memory_used_bytes": 25, "eviction_enabled": True, "eviction_priority": 1},
            {"name": "sub", "qos_class": "BE", "priority": 5500, "sub_priority": 5100, "memory_used_bytes": 4},
            {"name": "free", "qos_class": "BE", "priority_class": "koord-free", "priority": 5600,
             "memory_used_bytes": 2, "already_evicted": True},
        ],
        "strategy": {
            "memory_evict_threshold_percent": 80,
            "memory_evict_lower_percent": 62,
            "memory_allocatable_evict_threshold_percent": 80,
            "memory_allocatable_evict_lower_percent": 20,
            "evict_enabled_priority_threshold": 5500,
            "allocatable_evict_priority_threshold": 5600,
            "free_class_enable": True,
            "sub_priority_enable": True,
        },
    }  # fmt: skip

    answered = answer(**case)

    assert answered["output"] == {
        "tasks": [
            {
                "feature": BE,
                "status": "release",
                "to_release": {"memory_bytes": 28},
                "candidates_in_order": ["free", "sub", "late"],
            },
            {
                "feature": REQUESTED,
                "status": "release",
                "to_release": {"batch_memory_bytes": 80},
                "candidates_in_order": ["low", "late"],
            },
            {
                "feature": USED,
                "status": "release",
                "to_release": {"memory_bytes": 28},
                "candidates_in_order": ["late"],
            },
        ],
        "evicted_in_order": ["sub", "late", "low"],
    }
    assert [because["of"] for because in answered["because"]] == [
        "BEMemoryEvict/mem_bytes",
        "MemoryAllocatableEvict/mem_bytes",
        "MemoryAllocatableEvict/batch_mem_bytes",
        "MemoryEvict/mem_bytes",
        "evicted_pods",
    ]


def test_what_cannot_be_read_says_where() -> None:
    assert (
        "input.pods[0].memory_used_bytes"
        in answer(node_capacity_memory_bytes=100, pods=[{"memory_used_bytes": -1}])["error"]
    )
