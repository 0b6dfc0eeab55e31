"""One pod and one node, filtered and scored by load: both together, their laws, and as cases say it."""

import pytest
from hypothesis import given

from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.load.load_aware_estimator import (
    Amounts,
    LoadAwareArgs,
    LoadAwarePod,
    Percents,
    Thresholds,
    Weights,
)
from slacktide.streams.decisions.load.load_aware_existing import ExistingLoad, NodeReport
from slacktide.streams.decisions.load.load_aware_scheduling import (
    NodeState,
    Placement,
    allocatable_of,
    candidate,
    place,
)
from testbed.load_aware_cases import (
    GIB,
    T,
    all_args,
    answered,
    asked,
    load,
    pairs,
    pods,
    pods_there,
    report,
    reports,
    thresholds,
)

ROOMY = Amounts(96_000, 64 * GIB)
UNSET = Thresholds()


def placed(
    pod: LoadAwarePod,
    existing: ExistingLoad | None,
    args: LoadAwareArgs,
    *,
    now_s: float = T + 10,
    allocatable: Amounts = ROOMY,
    custom: Thresholds = UNSET,
) -> Placement:
    """The pod on the node."""
    return place(candidate(pod, args), state(existing, args, allocatable, custom), args, now_s=now_s)


def state(
    existing: ExistingLoad | None, args: LoadAwareArgs, allocatable: Amounts = ROOMY, custom: Thresholds = UNSET
) -> NodeState:
    return NodeState(allocatable=allocatable, custom=custom, load=existing, args=args)


BY_PRODUCTION = LoadAwareArgs(
    thresholds=Thresholds(usage=Percents(50, 50), prod=Percents(50, 50)), score_prod=True, weights=Weights(1, 1)
)


def test_production_meets_another_node_than_others() -> None:
    """A node that is full of batch work takes production, and is good for it."""
    full = load(report((90_000, 60 * GIB)))
    prod = placed(asked((1000, GIB)), full, BY_PRODUCTION)
    batch = placed(asked((1000, GIB), of_class="koord-batch"), full, BY_PRODUCTION)

    assert (prod.filtered.schedulable, prod.scored.score) == (True, 98)
    assert (batch.filtered.schedulable, batch.scored.score) == (False, 5)


def test_production_and_others_meet_the_same_node_whoever_comes_first_and_it_stays_as_it_is() -> None:
    full = load(report((90_000, 60 * GIB)))
    prod, batch = (
        candidate(asked((1000, GIB), of_class=name), BY_PRODUCTION) for name in ("koord-prod", "koord-batch")
    )
    one, other = state(full, BY_PRODUCTION), state(full, BY_PRODUCTION)

    assert [one.met_by(prod), one.met_by(batch)] == [*reversed([other.met_by(batch), other.met_by(prod)])]
    assert one == state(full, BY_PRODUCTION)


@pytest.mark.parametrize(
    ("now_s", "schedulable"),
    [
        pytest.param(T + 179, True, id="a report of 179 s ago"),
        pytest.param(T + 180, False, id="a report of 180 s ago"),
    ],
)
def test_a_report_is_too_old_after_180_s(now_s: float, schedulable) -> None:
    found = placed(asked(), load(report()), LoadAwareArgs(), now_s=now_s)

    assert found.filtered.schedulable is schedulable
    assert (found.scored.score > 0) is schedulable


def test_a_node_that_never_reported_takes_pods_and_is_good_for_none() -> None:
    found = placed(asked(), None, LoadAwareArgs())

    assert (found.filtered.schedulable, found.scored.score) == (True, 0)
    assert [(because.of, because.bound) for because in found.because] == [
        ("schedulable", "no_metric"),
        ("score", "no_metric"),
    ]


def test_a_daemon_sets_pod_goes_to_a_full_node_and_is_scored_as_any() -> None:
    found = placed(asked(daemonset=True), load(report((96_000, 0))), LoadAwareArgs())

    assert (found.filtered.bound, found.scored.score) == ("daemonset", 49)


def test_checks_are_told_before_scores() -> None:
    assert [because.of for because in placed(asked(), load(report()), LoadAwareArgs()).because] == [
        "schedulable/cpu",
        "schedulable/memory",
        "score/cpu",
        "score/memory",
        "score",
    ]


@pytest.mark.parametrize(
    ("published", "raw", "amounts"),
    [
        pytest.param((10, 20), (None, None), (10, 20), id="what is published"),
        pytest.param((10, 20), (7, None), (7, 20), id="what was before, resource by resource"),
        pytest.param((10, 20), (None, 0), (10, 0), id="0 is said, too"),
        pytest.param((None, None), (None, 3), (0, 3), id="what nobody says is 0"),
    ],
)
def test_what_is_allocatable(
    published: tuple[int | None, int | None], raw: tuple[int | None, int | None], amounts: tuple[int, int]
) -> None:
    def resources(pair: tuple[int | None, int | None]) -> Resources:
        return Resources(cpu_milli=pair[0], mem_bytes=pair[1])

    assert allocatable_of(resources(published), resources(raw)) == amounts


@given(
    pod=pods("new"),
    there=pods_there,
    reported=reports,
    custom=thresholds,
    more=pairs,
    args=all_args,
    allocatable=pairs,
)
def test_a_busier_node_is_never_better(
    pod: LoadAwarePod,
    there: tuple[LoadAwarePod, ...],
    reported: NodeReport,
    custom: Thresholds,
    more: Amounts,
    args: LoadAwareArgs,
    allocatable: Amounts,
) -> None:
    """More use, in every statistic, lets no pod in that had to stay out, and raises no score."""
    quiet = load(reported, *there, args=args)
    busy = load(busier(reported, more), *there, args=args)
    before = placed(pod, quiet, args, allocatable=allocatable, custom=custom)
    after = placed(pod, busy, args, allocatable=allocatable, custom=custom)

    assert before.filtered.schedulable or not after.filtered.schedulable
    assert 100 >= before.scored.score >= after.scored.score >= 0


def busier(reported: NodeReport, more: Amounts) -> NodeReport:
    def plus(used: Amounts) -> Amounts:
        return Amounts(used.cpu_milli + more.cpu_milli, used.mem_bytes + more.mem_bytes)

    node = reported.node
    if node is None:
        return reported
    aggregated = {wanted: plus(used) for wanted, used in node.aggregated.items()}
    node = node._replace(use=plus(node.use), system=plus(node.system), aggregated=aggregated)
    return reported._replace(node=node)


@given(pod=pods("new"), reported=reports, args=all_args, allocatable=pairs)
def test_terms_end_in_what_was_decided(
    pod: LoadAwarePod, reported: NodeReport, args: LoadAwareArgs, allocatable: Amounts
) -> None:
    found = placed(pod, load(reported, args=args), args, allocatable=allocatable)
    for because in found.filtered.because:
        if because.terms:
            exceeds = because.terms["used_pct"] > because.terms["threshold_pct"]
            assert (because.bound == "pass") is not exceeds
    *_, total = found.scored.because

    assert total.terms.get("score", 0) == found.scored.score
    assert found.filtered.schedulable is (found.filtered.reject_reason is None)


def case(**said: object) -> dict:
    """A node that uses half its CPU and a quarter of its memory, and a pod that asks for nothing."""
    metric = {
        "update_time_seconds": T,
        "node_usage": {"cpu_milli": 5000, "memory_bytes": 25 * GIB},
        "aggregated_node_usage": [
            {"type": "p95", "duration_seconds": 300, "usage": {"cpu_milli": 9000, "memory_bytes": 0}}
        ],
    }
    return {
        "now_seconds": T + 10,
        "node": {"allocatable": {"cpu_milli": 10_000, "memory_bytes": 100 * GIB}},
        "node_metric": metric,
        "pod": {"priority_class": "koord-mid"},
    } | said


@pytest.mark.parametrize(
    ("said", "reason", "score"),
    [
        pytest.param({}, None, 62, id="settings are optional"),
        pytest.param({"args": None, "assigned_pods": None}, None, 62, id="null is absent"),
        pytest.param({"args": {"usage_thresholds": {}}}, None, 62, id="an empty map of thresholds is absent: defaults"),
        pytest.param({"args": {"usage_thresholds": {"cpu": 49}}}, "usage_exceeds_threshold:cpu", 62, id="a threshold"),
        pytest.param({"args": {"usage_thresholds": {"memory": 24}}}, "usage_exceeds_threshold:memory", 62, id="memory"),
        pytest.param({"args": {"usage_thresholds": {"example.com/gpu": 1}}}, None, 62, id="of nothing known: none"),
        pytest.param({"args": {"usage_thresholds": {"cpu": None}}}, None, 62, id="a null threshold is 0"),
        pytest.param({"args": {"resource_weights": {}}}, None, 62, id="an empty map of weights is absent: defaults"),
        pytest.param({"args": {"resource_weights": {"cpu": 1}}}, None, 50, id="a resource without a weight has 0"),
        pytest.param({"args": {"resource_weights": {"memory": 2, "cpu": None}}}, None, 75, id="a null weight is 0"),
        pytest.param({"args": {"dominant_resource_weight": 1}}, None, 50, id="the scarcest"),
        pytest.param(
            {"args": {"aggregated": {"usage_thresholds": {"cpu": 80}, "usage_aggregation_type": "p95"}}},
            "aggregated_usage_exceeds_threshold:cpu",
            62,
            id="thresholds on a statistic",
        ),
        pytest.param(
            {
                "args": {
                    "aggregated": {
                        "usage_thresholds": {"cpu": 80},
                        "usage_aggregation_type": "p95",
                        "usage_aggregated_duration_seconds": 600,
                    }
                }
            },
            None,
            62,
            id="of a duration that was not recorded",
        ),
        pytest.param(
            {"args": {"aggregated": {"usage_thresholds": {}, "usage_aggregation_type": "p95"}}},
            None,
            62,
            id="no thresholds on a statistic",
        ),
        pytest.param({"args": {"aggregated": {"score_aggregation_type": "p95"}}}, None, 55, id="the score's statistic"),
        pytest.param(
            {"args": {"aggregated": {"score_aggregation_type": "p95", "score_aggregated_duration_seconds": 60}}},
            None,
            100,
            id="not recorded: an empty node",
        ),
        pytest.param({"args": {"aggregated": {"score_aggregation_type": ""}}}, None, 62, id="no kind, no statistic"),
        pytest.param({"node_metric": None}, None, 0, id="no metric"),
        pytest.param({"node_metric": {}}, "node_metric_expired", 0, id="an empty metric has no time"),
        pytest.param(
            {"node_metric": {}, "args": {"filter_expired_node_metrics": False}}, None, 0, id="that nobody asks for"
        ),
        pytest.param(
            {"args": {"node_metric_expiration_seconds": 10}}, "node_metric_expired", 0, id="another time to expire"
        ),
        pytest.param(
            {
                "args": {
                    "node_metric_expiration_seconds": 10,
                    "enable_schedule_when_node_metrics_expired": True,
                }
            },
            None,
            0,
            id="and still take pods",
        ),
        pytest.param({"node": {}}, None, 0, id="a node of which nothing is known"),
        pytest.param(
            {
                "node": {
                    "allocatable": {"cpu_milli": 10_000, "memory_bytes": 100 * GIB},
                    "raw_allocatable": {"cpu_milli": 5000},
                }
            },
            "usage_exceeds_threshold:cpu",
            37,
            id="before it was amplified",
        ),
        pytest.param(
            {
                "node": {
                    "allocatable": {"cpu_milli": 10_000, "memory_bytes": 100 * GIB},
                    "custom_usage_thresholds": {
                        "usage_thresholds": None,
                        "prod_usage_thresholds": None,
                        "aggregated": {"usage_thresholds": {"cpu": 10}, "usage_aggregation_type": "p95"},
                    },
                }
            },
            "aggregated_usage_exceeds_threshold:cpu",
            62,
            id="the node's own",
        ),
        pytest.param(
            {"args": {"usage_thresholds": {"cpu": 49}}, "pod": {"owned_by_daemonset": True, "priority": 7500}},
            None,
            62,
            id="a daemon set's",
        ),
    ],
)
def test_cases_may_leave_out_what_is_optional(said: dict, reason: str | None, score: int) -> None:
    output = answered("load_aware_scheduling", case(**said))["output"]

    assert (output["reject_reason"], output["schedulable"]) == (reason, reason is None)
    assert output["score"] == score


@pytest.mark.parametrize(
    ("metric", "everyone", "prod"),
    [
        pytest.param({}, 100, 100, id="nothing measured"),
        pytest.param({"system_usage": {"cpu_milli": 7}}, 100, 107, id="the system"),
        pytest.param({"node_usage": {"cpu_milli": 50}}, 150, 100, id="the node"),
        pytest.param(
            {"node_level_missing": True, "node_usage": {"cpu_milli": 50}, "system_usage": {"cpu_milli": 7}},
            100,
            100,
            id="nothing of the node as a whole, whatever is written there",
        ),
        pytest.param(
            {"pod_metrics": [{"name": "a", "priority_class": "koord-prod", "usage": {"cpu_milli": 40}}]},
            0,
            40,
            id="the pod, long ago",
        ),
        pytest.param({"pod_metrics": [{"name": "a", "usage": {"cpu_milli": 40}}]}, 0, 100, id="of no class"),
        pytest.param(
            {"pod_metrics": [{"name": "a", "priority_class": None, "usage": {"cpu_milli": 40}}]}, 0, 100, id="of null"
        ),
        pytest.param({"pod_metrics": [{"name": "a", "priority_class": "koord-prod"}]}, 100, 100, id="without a usage"),
        pytest.param(
            {"pod_metrics": [{"name": "a", "priority_class": "koord-prod", "usage": {}}]}, 100, 100, id="an empty usage"
        ),
        pytest.param(
            {"pod_metrics": [{"name": "a", "priority_class": "koord-prod", "usage": {"memory_bytes": 0}}]},
            0,
            0,
            id="a usage of 0 is one",
        ),
        pytest.param(
            {
                "report_interval_seconds": 3601,
                "pod_metrics": [{"name": "a", "priority_class": "koord-prod", "usage": {"cpu_milli": 40}}],
            },
            60,
            100,
            id="the pod, within the interval",
        ),
        pytest.param(
            {
                "report_interval_seconds": 0,
                "pod_metrics": [{"name": "a", "priority_class": "koord-prod", "usage": {"cpu_milli": 40}}],
            },
            0,
            40,
            id="an interval of 0 is one",
        ),
    ],
)
def test_what_a_case_says_of_a_nodes_load(metric: dict, everyone: int, prod: int) -> None:
    pod = {
        "name": "a",
        "uid": "a",
        "priority_class": "koord-prod",
        "requests": {"cpu_milli": 100, "memory_bytes": 0},
        "scheduled_time_seconds": T - 3600,
    }
    args = {"prod_usage_include_system": True, "estimated_scaling_factors": {"cpu": 100}}
    output = answered(
        "load_aware_scheduling",
        case(node_metric={"update_time_seconds": T} | metric, assigned_pods=[pod], args=args),
    )["output"]

    assert output["existing_estimated_all"]["cpu_milli"] == everyone
    assert output["existing_estimated_prod"]["cpu_milli"] == prod


def test_settings_of_estimates_come_from_the_case() -> None:
    pod = {
        "name": "a",
        "priority_class": "koord-prod",
        "requests": {"cpu_milli": 100},
        "scheduled_time_seconds": T - 3600,
        "initialized_time_seconds": T - 600,
        "custom_scaling_factors": {"cpu": 50},
        "custom_estimated_seconds_after_pod_scheduled": 3700,
        "custom_estimated_seconds_after_initialized": 700,
    }
    usage = [{"name": "a", "priority_class": "koord-prod", "usage": {"cpu_milli": 0}}]

    def prod(**args: object) -> int:
        said = case(node_metric={"update_time_seconds": T, "pod_metrics": usage}, assigned_pods=[pod], args=args)
        return answered("load_aware_scheduling", said)["output"]["existing_estimated_prod"]["cpu_milli"]

    assert prod() == 0
    assert prod(estimated_seconds_after_pod_scheduled=3601) == 85
    assert prod(estimated_seconds_after_initialized=601, estimated_scaling_factors={"cpu": 90}) == 90
    assert prod(allow_customize_estimation=True) == 50


@pytest.mark.parametrize(("scheduled_s", "everyone"), [(T - 60, 0), (T - 59, 60)])
def test_a_report_that_does_not_say_comes_every_60_s(scheduled_s: int, everyone: int) -> None:
    pod = {"name": "a", "priority": 9500, "requests": {"cpu_milli": 100}, "scheduled_time_seconds": scheduled_s}
    usage = [{"name": "a", "usage": {"cpu_milli": 40}}]
    metric = {"update_time_seconds": T, "report_interval_seconds": None, "pod_metrics": usage}
    args = {"estimated_scaling_factors": {"cpu": 100}}
    output = answered("load_aware_scheduling", case(node_metric=metric, assigned_pods=[pod], args=args))["output"]

    assert output["existing_estimated_all"]["cpu_milli"] == everyone


def test_pods_assigned_twice_count_once() -> None:
    pod = {"name": "a", "uid": "u", "priority_class": "koord-prod"}
    output = answered("load_aware_scheduling", case(assigned_pods=[pod, pod]))["output"]

    assert output["existing_estimated_prod"]["cpu_milli"] == 250


def test_a_case_tells_the_whole_arithmetic() -> None:
    told = answered("load_aware_scheduling", case(), explain=True)["because"]

    assert [because["of"] for because in told] == [
        "pod_estimate/cpu_milli",
        "pod_estimate/memory_bytes",
        "existing_estimated_all/cpu_milli",
        "existing_estimated_all/memory_bytes",
        "existing_estimated_prod/cpu_milli",
        "existing_estimated_prod/memory_bytes",
        "schedulable/cpu",
        "schedulable/memory",
        "score/cpu",
        "score/memory",
        "score",
    ]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"now_seconds": None}, "input.now_seconds: Expected `int`, got `null`"),
        ({"args": {"dominant_resource_weight": -1}}, "input.args.dominant_resource_weight: Expected `int` >= 0"),
        (
            {"node_metric": {"pod_metrics": [{"usage": {"cpu_milli": -1}}]}},
            "input.node_metric.pod_metrics[0].usage.cpu_milli: Expected `int` >= 0",
        ),
        ({"assigned_pods": [{"phase": 3}]}, "input.assigned_pods[0].phase: Expected `str`, got `int`"),
    ],
)
def test_what_cannot_be_computed_names_the_field(said: dict, error: str) -> None:
    assert answered("load_aware_scheduling", case(**said)) == {"error": error}


HUGE = {"cpu_milli": 2**53, "memory_bytes": 2**53}


@pytest.mark.parametrize(
    "said",
    [
        {"node": {"allocatable": {"cpu_milli": 1, "memory_bytes": 1}}, "node_metric": {"node_usage": HUGE}},
        {"pod": {"priority": 9000, "requests": HUGE, "limits": HUGE}},
        {"assigned_pods": [{"requests": HUGE, "uid": str(uid)} for uid in range(50)]},
        {"args": {"resource_weights": {"cpu": 2**53, "memory": 2**53}, "dominant_resource_weight": 2**53}},
        {"args": {"usage_thresholds": {"cpu": -1, "memory": -1_000_000}}},
        {"now_seconds": -(2**53), "args": {"node_metric_expiration_seconds": 2**53}},
        {"node_metric": {"update_time_seconds": 2**53, "report_interval_seconds": -(2**53)}},
        {"pod": {"phase": "?", "qos_class": "?", "priority_class": "?", "kube_qos_class": "?"}},
    ],
)
def test_odd_figures_are_computed_all_the_same(said: dict) -> None:
    output = answered("load_aware_scheduling", case(**said))["output"]

    assert 0 <= output["score"] <= 100
