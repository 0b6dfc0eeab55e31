"""Which nodes are overloaded and which have room, from both views."""

from math import inf

import pytest
from hypothesis import given

from slacktide.streams.decisions.load.load_aware_classify import Survey, SurveyPolicy, survey
from testbed.descheduling_cases import band, classes, clusters, node, pod, policy, survey_policies, surveys


def class_of(one, by: SurveyPolicy | None = None) -> str:
    (name,) = classes(survey([one], by or policy()))
    return name


def used(one, by: SurveyPolicy | None = None) -> tuple[int, int]:
    """CPU by all, and by production pods."""
    (seen,) = (seen for nodes in survey([one], by or policy()).classes.values() for seen in nodes)
    return seen.whole.used["cpu"], seen.prod.used["cpu"]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([], (5, 0), id="the system alone"),
        pytest.param([pod("a", 100), pod("b", 10, band="prod")], (115, 10), id="all pods, and production pods"),
        pytest.param([pod("a", None, band="prod")], (5, 0), id="without a metric: nothing"),
        pytest.param([pod("a", 10, band="prod", phase="Succeeded")], (15, 0), id="ended pods count for the node"),
        pytest.param([pod("a", 10, band="prod", phase="Failed")], (15, 0), id="failed ones, too"),
        pytest.param([pod("a", 10, band="prod", phase="Pending")], (15, 10), id="pending ones for both"),
        pytest.param([pod("a", 10, band="prod", phase="Unknown")], (15, 10), id="unknown ones for both"),
        pytest.param([pod("a", 10, priority_class_label=None, qos_label="LS")], (15, 10), id="production by QoS class"),
        pytest.param([pod("a", 10, band="mid", qos_label="LS")], (15, 0), id="mid is not production"),
    ],
)
def test_usage(pods: list, expected: tuple) -> None:
    assert used(node("a", *pods, system=5)) == expected


def test_pods_that_are_no_longer_there_count_for_the_node_alone() -> None:
    assert used(node("a", system=5, besides={"cpu": 7})) == (12, 0)


# Of 1000 millicores; thresholds are 300 and 600, for production pods 200 and 400.
@pytest.mark.parametrize(
    ("batch", "prod", "schedulable", "expected"),
    [
        pytest.param(0, 0, True, "both_low", id="idle"),
        pytest.param(100, 200, True, "both_low", id="at both low thresholds"),
        pytest.param(101, 200, True, "prod_low", id="one above the low threshold"),
        pytest.param(0, 201, True, "low", id="one above the low threshold for production pods"),
        pytest.param(99, 201, True, "low", id="at the low threshold, production between"),
        pytest.param(100, 201, True, "between", id="between in both"),
        pytest.param(199, 400, True, "between", id="at the high threshold for production pods"),
        pytest.param(0, 401, True, "prod_high", id="one above the high threshold for production pods"),
        pytest.param(199, 401, True, "prod_high", id="at the high threshold"),
        pytest.param(200, 401, True, "high", id="one above the high threshold: over in both is over by all"),
        pytest.param(601, 0, True, "high", id="over by batch pods alone"),
        pytest.param(0, 0, False, "between", id="unschedulable and idle is no room"),
        pytest.param(301, 0, False, "between", id="nor for production pods"),
        pytest.param(0, 401, False, "prod_high", id="unschedulable and over all the same"),
        pytest.param(601, 0, False, "high", id="by all, too"),
    ],
)
def test_classes(batch: int, prod: int, schedulable: bool, expected: str) -> None:  # noqa: FBT001 - a table's column
    one = node("a", pod("batch", batch), pod("prod", prod, band="prod"), schedulable=schedulable)

    assert class_of(one, policy((30, 60), (20, 40))) == expected


def test_under_the_low_but_over_the_high_threshold_for_production_pods() -> None:
    assert class_of(node("a", pod("a", 250, band="prod")), policy((30, 60), (10, 20))) == "prod_high"


def test_one_resource_is_enough_to_be_over_and_all_must_be_under() -> None:
    by = SurveyPolicy(
        whole=type(band())(low={"cpu": 30, "memory": 30}, high={"cpu": 60, "memory": 60}), prod=band(100, 100)
    )

    assert class_of(node("a", pod("a", 10, memory=601)), by) == "high"
    assert class_of(node("a", pod("a", 10, memory=301)), by) == "prod_low"
    assert class_of(node("a", pod("a", 10, memory=300)), by) == "both_low"


def test_percents_are_of_the_capacity_not_of_what_pods_may_request() -> None:
    amplified = node("a", pod("a", 700), cpu=2_000, capacity={"cpu": 1_000, "memory": 1_000})

    assert class_of(amplified) == "high"
    assert class_of(node("a", pod("a", 700), cpu=2_000)) == "prod_low"


@pytest.mark.parametrize(
    ("age_s", "expiration_s", "bound"),
    [
        pytest.param(179, 180, "both_low", id="young"),
        pytest.param(180, 180, "metric_expired", id="just expired"),
        pytest.param(-5, 180, "both_low", id="of the future"),
        pytest.param(10_000, 0, "both_low", id="nothing expires"),
        pytest.param(10_000, -1, "both_low", id="nothing expires below 0, either"),
        pytest.param(1, 1, "metric_expired", id="a short time"),
        pytest.param(inf, 180, "metric_expired", id="of unknown age"),
        pytest.param(inf, 0, "both_low", id="of unknown age where nothing expires"),
        pytest.param(None, 180, "no_metric", id="none"),
        pytest.param(None, 0, "no_metric", id="none where nothing expires"),
    ],
)
def test_nodes_without_a_usable_metric_are_left_out(age_s: float | None, expiration_s: int, bound: str) -> None:
    seen = survey([node("a", age_s=age_s)], policy(metric_expiration_s=expiration_s))

    assert classes(seen) == ({"both_low": ["a"]} if bound == "both_low" else {})
    assert [one.bound for one in seen.because if one.of == "nodes/a/class"] == [bound]


def test_metrics_expire_after_three_minutes_by_default() -> None:
    assert classes(survey([node("a", age_s=180), node("b", age_s=179)], policy())) == {"both_low": ["b"]}


def test_nodes_that_are_left_out_do_not_count_for_the_average() -> None:
    by = policy((10, 10), use_deviation=True)
    busy, idle, gone = node("busy", pod("a", 800)), node("idle"), node("gone", age_s=None)

    assert classes(survey([busy, idle, gone], by)) == {"high": ["busy"], "both_low": ["idle"]}


def test_production_pods_have_an_average_of_their_own() -> None:
    by = policy((50, 50), (10, 10), use_deviation=True)
    prod, batch = node("prod", pod("a", 400, band="prod")), node("batch", pod("b", 400))

    # On average 400 millicores by all and 200 by production pods.
    assert classes(survey([prod, batch], by)) == {"prod_high": ["prod"], "prod_low": ["batch"]}


def test_a_class_has_its_nodes_in_the_order_of_names() -> None:
    assert classes(survey([node("c"), node("a"), node("b")], policy())) == {"both_low": ["a", "b", "c"]}


def test_each_node_tells_its_figures_against_the_thresholds() -> None:
    one = node("a", pod("x", 250, band="prod"), pod("y", 400, memory=7), system=1)

    because = survey([one], policy((30, 60), (20, 40))).because

    assert [reason.of for reason in because] == [
        "nodes/a/whole/cpu",
        "nodes/a/whole/memory",
        "nodes/a/prod/cpu",
        "nodes/a/prod/memory",
        "nodes/a/class",
    ]
    assert because[-1].bound == "high"
    assert list(because[-1].terms.items()) == [
        ("whole_low_cpu_milli", 300),
        ("whole_high_cpu_milli", 600),
        ("whole_used_cpu_milli", 651),
        ("whole_low_memory_bytes", 1_000),
        ("whole_high_memory_bytes", 1_000),
        ("whole_used_memory_bytes", 7),
        ("prod_low_cpu_milli", 200),
        ("prod_high_cpu_milli", 400),
        ("prod_used_cpu_milli", 250),
        ("prod_low_memory_bytes", 1_000),
        ("prod_high_memory_bytes", 1_000),
        ("prod_used_memory_bytes", 0),
    ]


def test_a_node_that_is_left_out_tells_by_what() -> None:
    none, old = survey([node("a", age_s=None), node("b", age_s=200)], policy()).because

    assert none.terms == {"expiration_s": 180}
    assert old.terms == {"expiration_s": 180, "age_s": 200}


@given(clusters, survey_policies)
def test_every_node_with_a_usable_metric_is_in_one_class(cluster: list, by: SurveyPolicy) -> None:
    seen = survey(cluster, by)

    usable = sorted(one.name for one in cluster if one.metric_age_s == 10)
    assert sorted(one.node.name for nodes in seen.classes.values() for one in nodes) == usable


@given(surveys)
def test_only_schedulable_nodes_have_room(seen: Survey) -> None:
    assert all(one.node.schedulable for name in ("low", "prod_low", "both_low") for one in seen.classes[name])
