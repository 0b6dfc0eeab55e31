"""What a pod is expected to use before anybody has measured it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Pod, Resources
from slacktide.streams.decisions.load.load_aware_estimator import (
    Factors,
    LoadAwareArgs,
    LoadAwarePod,
    estimate,
    round_half_away,
)
from testbed.load_aware_cases import all_args, answered, asked, pods

MIB = 2**20
DEFAULTS = LoadAwareArgs()
FREE = LoadAwareArgs(free_class_enable=True)


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.0, 0),
        (0.5, 1),
        (-0.0, 0),
        (2.4, 2),
        (2.5, 3),
        (3.5, 4),
        (-2.4, -2),
        (-2.5, -3),
        (-0.5, -1),
        pytest.param(0.49999999999999994, 0, id="the largest double below a half"),
        pytest.param(2.0**53 + 2, 2**53 + 2, id="where doubles are all whole"),
    ],
)
def test_halves_round_away_from_zero(value: float, rounded: int) -> None:
    assert round_half_away(value) == rounded


@pytest.mark.parametrize(
    ("of_class", "args", "amounts"),
    [
        pytest.param("koord-prod", DEFAULTS, (85, 70), id="native resources of a production pod"),
        pytest.param("koord-mid", DEFAULTS, (85, 70), id="mid resources of a mid pod"),
        pytest.param("koord-batch", DEFAULTS, (85, 70), id="batch resources of a batch pod"),
        pytest.param("koord-free", DEFAULTS, (0, 0), id="nothing of a free pod"),
        pytest.param("koord-free", FREE, (85, 70), id="free resources of a free pod where free is a class"),
    ],
)
def test_a_pod_is_estimated_by_the_resources_of_its_class(
    of_class: str, args: LoadAwareArgs, amounts: tuple[int, int]
) -> None:
    assert estimate(asked((100, 100), of_class=of_class), args).amounts == amounts


def test_resources_of_other_classes_do_not_count() -> None:
    every = Resources(
        cpu_milli=1,
        mem_bytes=2,
        mid_cpu_milli=3,
        mid_mem_bytes=4,
        batch_cpu_milli=5,
        batch_mem_bytes=6,
        free_cpu_milli=7,
        free_mem_bytes=8,
    )
    plain = LoadAwareArgs(factors=Factors(100, 100), free_class_enable=True)
    found = {
        of_class: estimate(
            LoadAwarePod(pod=Pod(uid="", namespace="", name="", priority_class_label=of_class, requests=every)), plain
        ).amounts
        for of_class in ("koord-prod", "koord-mid", "koord-batch", "koord-free")
    }

    assert found == {"koord-prod": (1, 2), "koord-mid": (3, 4), "koord-batch": (5, 6), "koord-free": (7, 8)}


@pytest.mark.parametrize(
    ("of_class", "amounts", "bound"),
    [
        pytest.param("koord-prod", (250, 200 * MIB), "default", id="production"),
        pytest.param("koord-batch", (250, 200 * MIB), "default", id="batch"),
        pytest.param("koord-mid", (0, 0), "nothing", id="mid"),
        pytest.param("koord-free", (0, 0), "nothing", id="free"),
    ],
)
def test_who_asks_for_nothing_has_a_default_or_nothing(of_class: str, amounts: tuple[int, int], bound: str) -> None:
    """Factors do not touch the default."""
    found = estimate(asked(of_class=of_class), FREE)

    assert found.amounts == amounts
    assert [because.bound for because in found.because] == [bound, bound]
    assert [because.terms for because in found.because] == [
        {"request_milli": 0, "limit_milli": 0, "estimate_milli": amounts[0]},
        {"request_bytes": 0, "limit_bytes": 0, "estimate_bytes": amounts[1]},
    ]


@pytest.mark.parametrize(
    ("request_milli", "limit_milli", "factor_pct", "cpu_milli", "bound"),
    [
        pytest.param(100, 0, 85, 85, "scaled", id="the request"),
        pytest.param(100, 200, 85, 170, "scaled", id="a limit above it"),
        pytest.param(200, 100, 85, 100, "capped", id="a limit below it only caps"),
        pytest.param(100, 100, 120, 100, "capped", id="never more than the limit"),
        pytest.param(100, 100, 100, 100, "scaled", id="exactly the limit"),
        pytest.param(100, 0, 120, 120, "scaled", id="no limit, no cap"),
        pytest.param(0, 1, 120, 1, "scaled", id="a limit of 1"),
        pytest.param(100, 0, 0, 0, "scaled", id="factor 0"),
        pytest.param(10, 0, 85, 9, "scaled", id="8.5 rounds up"),
        pytest.param(50, 0, 29, 15, "scaled", id="14.5 by the product first; by the factor first it were less"),
    ],
)
def test_the_larger_of_request_and_limit_is_scaled_and_capped(
    request_milli: int, limit_milli: int, factor_pct: int, cpu_milli: int, bound: str
) -> None:
    args = LoadAwareArgs(factors=Factors(cpu_pct=factor_pct))
    found = estimate(asked((request_milli, 10), (limit_milli, 0)), args)

    assert found.amounts == (cpu_milli, 7)
    assert found.because[0].bound == bound
    assert list(found.because[0].terms) == [
        "request_milli",
        "limit_milli",
        "factor_pct",
        "scaled_milli",
        "estimate_milli",
    ]


def test_the_arithmetic_is_told_for_both_resources() -> None:
    cpu, mem = estimate(asked((100, 300), (50, 0)), LoadAwareArgs(factors=Factors(cpu_pct=90))).because

    assert (cpu.of, cpu.bound) == ("cpu_milli", "capped")
    assert cpu.terms == {
        "request_milli": 100,
        "limit_milli": 50,
        "factor_pct": 90,
        "scaled_milli": 90,
        "estimate_milli": 50,
    }
    assert (mem.of, mem.bound) == ("memory_bytes", "scaled")
    assert mem.terms == {
        "request_bytes": 300,
        "limit_bytes": 0,
        "factor_pct": 70,
        "scaled_bytes": 210,
        "estimate_bytes": 210,
    }


@pytest.mark.parametrize(
    ("configured", "custom", "allowed", "amounts"),
    [
        pytest.param((None, None), (None, None), True, (850, 700), id="85 % of CPU and 70 % of memory by default"),
        pytest.param((50, None), (None, None), True, (500, 700), id="what is not configured has its default"),
        pytest.param((None, 50), (None, None), True, (850, 500), id="the other way round"),
        pytest.param((50, 60), (10, 20), False, (500, 600), id="a pod's own do not count unless allowed"),
        pytest.param((50, 60), (10, 20), True, (100, 200), id="a pod's own stand for the configured ones"),
        pytest.param((50, 60), (10, None), True, (100, 600), id="resource by resource"),
        pytest.param((None, 60), (None, 20), True, (850, 200), id="down to the default"),
        pytest.param((50, 60), (0, 0), True, (0, 0), id="a factor of 0 is one"),
    ],
)
def test_whose_factors_count(
    configured: tuple[int | None, int | None],
    custom: tuple[int | None, int | None],
    allowed,
    amounts: tuple[int, int],
) -> None:
    args = LoadAwareArgs(factors=Factors(*configured), allow_customize=allowed)

    assert estimate(asked((1000, 1000), custom_factors=Factors(*custom)), args).amounts == amounts


def test_a_pods_own_factors_do_not_count_unless_the_cluster_says_so() -> None:
    own = asked((1000, 1000), custom_factors=Factors(1, 1))

    assert estimate(own, DEFAULTS).amounts == (850, 700)


@given(pod=pods(), args=all_args)
def test_no_estimate_is_above_the_limit_or_below_nothing(pod: LoadAwarePod, args: LoadAwareArgs) -> None:
    found = estimate(pod, args)

    for amount, because in zip(found.amounts, found.because, strict=True):
        *_, result = because.terms.values()
        unit = because.of.rpartition("_")[2]
        assert result == amount >= 0
        if because.bound in {"scaled", "capped"} and because.terms[f"limit_{unit}"]:
            assert amount <= because.terms[f"limit_{unit}"]


@given(request_milli=st.integers(1, 10**6), more=st.integers(0, 10**6), args=all_args)
def test_who_asks_for_more_is_never_expected_to_use_less(request_milli: int, more: int, args: LoadAwareArgs) -> None:
    less = estimate(asked((request_milli, 1)), args).amounts
    large = estimate(asked((request_milli + more, 1)), args).amounts

    assert large >= less


CASE = {"pod": {"requests": {"cpu_milli": 100, "memory_bytes": 100}, "priority_class": "koord-prod"}}
ABSENT = {
    "estimated_scaling_factors": None,
    "allow_customize_estimation": None,
    "free_class_enable": None,
    "pod": {
        "qos_class": None,
        "priority_class": None,
        "priority": None,
        "requests": None,
        "limits": None,
        "usage": None,
        "custom_scaling_factors": None,
        "custom_estimated_seconds_after_pod_scheduled": None,
        "custom_estimated_seconds_after_initialized": None,
        "scheduled_time_seconds": None,
        "initialized_time_seconds": None,
        "owned_by_daemonset": None,
    },
}


@pytest.mark.parametrize(
    ("case", "output"),
    [
        pytest.param(CASE, {"cpu_milli": 85, "memory_bytes": 70}, id="only a pod"),
        pytest.param(ABSENT, {"cpu_milli": 250, "memory_bytes": 200 * MIB}, id="null is absent"),
        pytest.param({"pod": {}}, {"cpu_milli": 250, "memory_bytes": 200 * MIB}, id="absent is absent"),
        pytest.param(
            {
                "free_class_enable": True,
                "pod": {"priority": 3500, "limits": {"free_cpu_milli": 100, "free_memory_bytes": 10}},
            },
            {"cpu_milli": 85, "memory_bytes": 7},
            id="a free pod where free is a class",
        ),
        pytest.param(
            CASE | {"estimated_scaling_factors": {"cpu": None, "memory": 10, "example.com/gpu": 3}},
            {"cpu_milli": 85, "memory_bytes": 10},
            id="a factor for something else",
        ),
    ],
)
def test_cases_may_leave_out_what_is_optional(case: dict, output: dict) -> None:
    assert answered("load_aware_estimator", case) == {"output": output}


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ({}, "input: Object missing required field `pod`"),
        ({"pod": {"requests": {"cpu_milli": -1}}}, "input.pod.requests.cpu_milli: Expected `int` >= 0"),
        ({"pod": {"custom_scaling_factors": {"cpu": -1}}}, "input.pod.custom_scaling_factors.cpu: Expected `int` >= 0"),
        (
            {"pod": {}, "estimated_scaling_factors": {"memory": "70"}},
            "input.estimated_scaling_factors.memory: Expected `int | null`, got `str`",
        ),
    ],
)
def test_what_cannot_be_computed_names_the_field(case: dict, error: str) -> None:
    assert answered("load_aware_estimator", case) == {"error": error}
