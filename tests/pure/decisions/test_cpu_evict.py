"""Which pods leave a node when CPU runs short."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slacktide.deploy.cli.calc.calculations import Calculation
from slacktide.schemas.inventory import Resources
from slacktide.schemas.policy.strategies import ResourceThreshold
from slacktide.schemas.sample import BeCpu, BeCpuWindow
from slacktide.streams.decisions.evict.cpu_evict import CpuEvictNode, cpu_evict
from slacktide.streams.decisions.evict.evict_candidates import EvictPod, Order
from slacktide.streams.decisions.evict.evict_tasks import Evictions, EvictTask
from testbed.evict_cases import any_pods, be, distinct, evicted, gone, names, sold

BE, REQUESTED, USED = "BECPUEvict", "CPUAllocatableEvict", "CPUEvict"
FEATURES = (BE, REQUESTED, USED)
ALL = ResourceThreshold(
    cpu_evict_be_satisfaction_lower_pct=40,
    cpu_evict_be_satisfaction_upper_pct=50,
    cpu_evict_threshold_pct=80,
    cpu_evict_lower_pct=60,
    cpu_allocatable_evict_threshold_pct=80,
    cpu_allocatable_evict_lower_pct=50,
    evict_enabled_priority_threshold=7000,
    allocatable_evict_priority_threshold=7999,
)


def starved(request_milli: float) -> BeCpuWindow:
    """A quarter of what was requested, in use; another quarter is to be released."""
    be_cpu = BeCpu(usage_milli=request_milli, request_milli=request_milli, limit_milli=request_milli / 4)
    return BeCpuWindow(average=be_cpu, current=be_cpu, samples=60, interval_s=1)


def decided(
    *pods: EvictPod,
    features: tuple[str, ...] = FEATURES,
    used: int | None = 90,
    capacity: int = 100,
    allocatable: Resources = Resources(),  # noqa: B008 - immutable
    window: BeCpuWindow = starved(160),  # noqa: B008 - immutable
    free_first: bool = False,
    **policy: Any,
) -> Evictions:
    """On a node where 30 millicores are to be released by use, and 40 by satisfaction."""
    node = CpuEvictNode(capacity=capacity, used=used, allocatable=allocatable, pods=pods, be=window)
    thresholds = msgspec.structs.replace(ALL, **policy)
    order = Order(free_first=free_first, sub_priority=thresholds.sub_priority_enable)
    return cpu_evict(node, features=features, policy=thresholds, order=order)


def only(feature: str, *pods: EvictPod, **more: Any) -> EvictTask:
    """The one task of the feature."""
    (task,) = decided(*pods, features=(feature,), **more).tasks
    return task


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_node_without_capacity_is_left_alone(capacity: int) -> None:
    done = decided(be("a", used=90), capacity=capacity)

    assert (done.tasks, done.victims) == ((), ())
    assert [because.bound for because in done.because] == ["no_capacity"]


def test_a_node_of_one_millicore_is_not() -> None:
    assert len(decided(capacity=1).tasks) == 3


@pytest.mark.parametrize("enabled", [FEATURES, FEATURES[::-1], (USED, "Another", BE), ()])
def test_the_enabled_features_have_their_turns_in_a_fixed_order(enabled: tuple[str, ...]) -> None:
    done = decided(features=enabled)

    assert [task.feature for task in done.tasks] == [name for name in FEATURES if name in enabled]


@pytest.mark.parametrize(
    ("unset", "invalid"),
    [
        ("cpu_evict_be_satisfaction_lower_pct", BE),
        ("cpu_evict_be_satisfaction_upper_pct", BE),
        ("cpu_evict_threshold_pct", USED),
        ("cpu_allocatable_evict_threshold_pct", REQUESTED),
        ("cpu_allocatable_evict_lower_pct", REQUESTED),
        ("evict_enabled_priority_threshold", USED),
        ("allocatable_evict_priority_threshold", REQUESTED),
    ],
)
def test_what_each_feature_must_know(unset: str, invalid: str) -> None:
    done = decided(**{unset: None})

    assert [task.feature for task in done.tasks if task.release.status == "invalid_config"] == [invalid]


def test_the_lower_percent_of_use_is_two_below_the_threshold_unless_said() -> None:
    assert only(USED, cpu_evict_lower_pct=None).release.amounts == {"cpu_milli": 12}


def test_best_effort_pods_free_the_batch_cpu_they_requested() -> None:
    """Whatever their class counts for elsewhere, and also if that is nothing."""
    pods = [
        be("service", qos="LS", priority=100, batch_cpu=90, used=90),
        be("busy", batch_cpu=20, used=20),
        be("mid", band="koord-mid", batch_cpu=30, mid_cpu=90, used=10),
        be("none", priority=5000, cpu=90, used=90),
        be("unmeasured", batch_cpu=30),
    ]

    task = only(BE, *pods)

    assert task.release.amounts == {"batch_cpu_milli": 40}
    assert names(task.candidates) == ["none", "busy", "mid", "unmeasured"]
    assert evicted(decided(*pods, features=(BE,))) == ["none", "busy", "mid"]


def test_what_is_sold_may_be_the_limit() -> None:
    by_what_is_sold = {"cpu_evict_policy": "evictByAllocatable", "allocatable": Resources(batch_cpu_milli=40)}

    assert only(BE, window=starved(160), **by_what_is_sold).release.amounts == {"batch_cpu_milli": 40}
    assert only(BE, window=starved(400), **by_what_is_sold).release.amounts == {"batch_cpu_milli": 160}


def test_who_goes_by_use() -> None:
    pods = [
        be("prod", qos="LS", priority=9500, used=50),
        be("service", qos="LS", priority=100, used=10),
        be("batch", used=15),
        be("idle", used=0),
        be("unknown"),
    ]

    assert names(only(USED, *pods).candidates) == ["service", "batch", "idle"]
    assert evicted(decided(*pods, features=(USED,))) == ["service", "batch", "idle"]


def test_native_cpu_to_release_is_millicores() -> None:
    """Two small pods of 90 millicores are enough for 180, where whole cores would claim every one."""
    pods = [be(name, qos="LS", priority=100, cpu=90, used=1) for name in "abcd"]

    done = decided(*pods, features=(REQUESTED,), allocatable=Resources(cpu_milli=360))

    assert done.tasks[0].release.amounts == {"cpu_milli": 180}
    assert evicted(done) == ["a", "b"]


def test_requested_cpu_is_released_by_those_whose_class_is_short() -> None:
    pods = [
        be("batch", batch_cpu=50, used=1),
        be("small", priority=7000, mid_cpu=30, used=1),
        be("large", priority=7000, mid_cpu=60, used=1),
        be("nothing", priority=7000, used=1),
        be("unmeasured", priority=7000, mid_cpu=5),
    ]

    task = only(REQUESTED, *pods, allocatable=Resources(mid_cpu_milli=100, batch_cpu_milli=100))

    assert task.release.amounts == {"mid_cpu_milli": 45}
    assert names(task.candidates) == ["large", "small"]


def test_features_share_what_is_released() -> None:
    """BECPUEvict's victims free 60 of batch CPU: enough for the next feature, and they used what the last one wants."""
    pods = [be("a", batch_cpu=30, used=20), be("b", batch_cpu=30, used=10), be("c", batch_cpu=30, used=9)]

    done = decided(*pods, allocatable=Resources(batch_cpu_milli=100))

    assert [(victim.feature, victim.pod.pod.name) for victim in done.victims] == [(BE, "a"), (BE, "b")]
    assert done.because[-1].terms == {
        "request_batch_cpu_target_milli": 40,
        "request_batch_cpu_released_milli": 60,
        "used_cpu_target_milli": 30,
        "used_cpu_released_milli": 30,
        "evicted_pods": 2,
    }


@pytest.mark.parametrize("feature", FEATURES)
def test_the_switches_reach_every_feature_they_are_for(feature: str) -> None:
    pods = [
        be("a", batch_cpu=9, cpu=9, used=9),
        be("b", batch_cpu=9, cpu=9, used=5, sub_priority=5100),
        be("free", priority=7000, band="koord-free", batch_cpu=9, cpu=9, used=1),
    ]

    plain = only(feature, *pods)
    switched = only(feature, *pods, sub_priority_enable=True, free_first=True)

    assert names(plain.candidates) == (["a", "b", "free"] if feature == BE else ["b", "a", "free"])
    assert names(switched.candidates) == ["free", "b", "a"]


def test_each_feature_says_why_then_the_outcome() -> None:
    done = decided(be("a", batch_cpu=9, used=9))

    assert [(because.of, because.bound) for because in done.because] == [
        ("BECPUEvict/batch_cpu_milli", "formula"),
        ("CPUAllocatableEvict/batch_cpu_milli", "not_sold"),
        ("CPUEvict/cpu_milli", "formula"),
        ("evicted_pods", "too_few_candidates"),
    ]


features = st.lists(st.sampled_from(FEATURES), unique=True).map(tuple)
nodes = st.fixed_dictionaries(
    {
        "used": st.sampled_from([90, 101, 130, 180, 79, None]),
        "allocatable": sold,
        "window": st.sampled_from([160, 400, 10, 0]).map(starved),
    }
)


@given(pods=any_pods(*FEATURES), feature=st.sampled_from(FEATURES), node=nodes)
def test_no_victim_too_many(pods: list[EvictPod], feature: str, node: dict) -> None:
    """Victims go in the candidates' order, and without the last one something that is wanted is not released."""
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


@given(
    pods=any_pods(*FEATURES),
    case=st.sampled_from(
        [
            (USED, "cpu_evict_threshold_pct", {"cpu_evict_lower_pct": None}),
            (REQUESTED, "cpu_allocatable_evict_threshold_pct", {"cpu_allocatable_evict_lower_pct": -1}),
            (BE, "cpu_evict_be_usage_threshold_pct", {}),
        ]
    ),
    node=nodes,
    pct=st.integers(0, 120),
)
def test_raising_a_threshold_adds_no_victim(pods: list[EvictPod], case: tuple, node: dict, pct: int) -> None:
    feature, threshold, more = case

    def victims(threshold_pct: int) -> set[EvictPod]:
        done = decided(*pods, features=(feature,), **node, **more, **{threshold: threshold_pct})
        return {victim.pod for victim in done.victims}

    assert victims(pct + 1) <= victims(pct)


@given(data=st.data(), pods=any_pods(*FEATURES), enabled=features, node=nodes)
@settings(max_examples=60)
def test_where_nothing_ties_the_order_of_the_pods_does_not_matter(
    data: st.DataObject, pods: list[EvictPod], enabled: tuple[str, ...], node: dict
) -> None:
    pods = distinct(pods)
    more = {"features": enabled, "capacity": 1000, **node, "used": 1200}

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
            because.of: because.terms["release_milli"]
            for because in task.release.because
            if task.release.amounts and "release_milli" in because.terms
        }
        assert told == {f"{task.feature}/{resource}": amount for resource, amount in task.release.amounts.items()}


calc = Calculation("cpu_evict", explain=True)


def answer(**fields: Any) -> dict[str, Any]:
    return json.loads(calc.answer(json.dumps({"name": "x", "input": fields})).line)


def test_a_case_needs_only_the_capacity_and_takes_null_for_the_rest() -> None:
    assert answer(node_capacity_cpu_milli=100)["output"] == {"tasks": [], "evicted_in_order": []}
    nothing = dict.fromkeys(
        (
            "node_allocatable",
            "node_cpu_used_cores_average",
            "metric_collect_interval_seconds",
            "be_metric_sample_count",
            "be_average",
            "be_current",
            "pods",
        )
    )
    strategy = {
        "cpu_evict_be_satisfaction_lower_percent": 40,
        "cpu_evict_be_satisfaction_upper_percent": 80,
        "cpu_evict_policy": None,
        "cpu_evict_time_window_seconds": None,
        "cpu_evict_be_usage_threshold_percent": None,
        "cpu_evict_threshold_percent": 80,
        "evict_enabled_priority_threshold": 0,
    }
    answered = answer(node_capacity_cpu_milli=100, enabled_features=list(FEATURES), strategy=strategy, **nothing)
    assert answered["output"] == {
        "tasks": [
            {"feature": BE, "status": "nothing_to_release"},
            {"feature": REQUESTED, "status": "invalid_config"},
            {"feature": USED, "status": "nothing_to_release"},
        ],
        "evicted_in_order": [],
    }


def test_a_case_of_all_features_in_the_cases_own_words() -> None:
    be_cpu = {"usage_milli": 3600.5, "request_milli": 9000.5, "real_limit_milli": 3600.2}
    case = {
        "enabled_features": list(FEATURES),
        "node_capacity_cpu_milli": 10_000,
        "node_cpu_used_cores_average": 9.0999,
        "metric_collect_interval_seconds": 1,
        "be_metric_sample_count": 60,
        "be_average": be_cpu,
        "be_current": be_cpu,
        "node_allocatable": {"batch_cpu_milli": 5000},
        "pods": [
            {"name": "free", "qos_class": "BE", "priority_class": "koord-free", "priority": 5900,
             "requests": {"free_cpu_milli": 100}, "cpu_used_cores": 0.2509, "eviction_enabled": True},
            {"name": "job", "qos_class": "BE", "priority": 5500, "requests": {"batch_cpu_milli": 9000},
             "cpu_used_cores": 1.0, "eviction_enabled": True},
        ],
        "strategy": {
            "cpu_evict_be_satisfaction_lower_percent": 40,
            "cpu_evict_be_satisfaction_upper_percent": 50,
            "cpu_evict_time_window_seconds": 60,
            "cpu_evict_threshold_percent": 85,
            "cpu_evict_lower_percent": 80,
            "cpu_allocatable_evict_threshold_percent": 80,
            "cpu_allocatable_evict_lower_percent": 50,
            "evict_enabled_priority_threshold": 5999,
            "allocatable_evict_priority_threshold": 5999,
            "free_class_enable": True,
        },
    }  # fmt: skip

    answered = answer(**case)

    assert answered["output"] == {
        "tasks": [
            {
                "feature": BE,
                "status": "release",
                "to_release": {"batch_cpu_milli": 900},
                "candidates_in_order": ["free", "job"],
            },
            {
                "feature": REQUESTED,
                "status": "release",
                "to_release": {"batch_cpu_milli": 6500, "free_cpu_milli": 100},
                "candidates_in_order": ["free", "job"],
            },
            {
                "feature": USED,
                "status": "release",
                "to_release": {"cpu_milli": 1000},
                "candidates_in_order": ["free", "job"],
            },
        ],
        "evicted_in_order": ["free", "job"],
    }
    assert answered["because"][-1]["terms"] == {
        "request_batch_cpu_target_milli": 6500,
        "request_batch_cpu_released_milli": 9000,
        "request_free_cpu_target_milli": 100,
        "request_free_cpu_released_milli": 100,
        "used_cpu_target_milli": 1000,
        "used_cpu_released_milli": 1250,
        "evicted_pods": 2,
    }


def test_what_cannot_be_read_says_where() -> None:
    assert "input.be_average.usage_milli" in answer(node_capacity_cpu_milli=1, be_average={"usage_milli": "x"})["error"]
