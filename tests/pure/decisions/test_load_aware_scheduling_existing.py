"""The load that a node already has before a pod comes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_estimator import Aggregation, Amounts, LoadAwareArgs, LoadAwarePod
from slacktide.streams.decisions.load.load_aware_existing import NodeReport, existing_load, expired
from testbed.load_aware_cases import EXACT, T, all_args, asked, assigned, load, pods, pods_there, report, reports

LONG_AGO = T - 3600
SCHEDULED_60 = LoadAwareArgs(factors=EXACT.factors, after_scheduled_s=60)
INITIALIZED_60 = LoadAwareArgs(factors=EXACT.factors, after_initialized_s=60)
BOTH = LoadAwareArgs(factors=EXACT.factors, after_scheduled_s=600, after_initialized_s=60)
OWN = LoadAwareArgs(factors=EXACT.factors, after_scheduled_s=60, after_initialized_s=60, allow_customize=True)


def grown(pod: LoadAwarePod, *, args: LoadAwareArgs = EXACT, **said: object) -> bool:
    """Whether a pod that asks for 100 and uses 40 counts its estimate: 60 more than the node uses."""
    found = load(report((1000, 1000), {"a": (40, 40)}, **said), pod, args=args)
    assert found.everyone in {(1000, 1000), (1060, 1060)}
    assert found.prod in {(40, 40), (100, 100)}
    assert (found.everyone == (1060, 1060)) == (found.prod == (100, 100))
    return found.everyone == (1060, 1060)


@pytest.mark.parametrize(
    ("scheduled_s", "said", "counts"),
    [
        pytest.param(T - 60, {}, False, id="a whole report interval before the report"),
        pytest.param(T - 59, {}, True, id="within the last interval"),
        pytest.param(T + 5, {}, True, id="after the report"),
        pytest.param(None, {}, True, id="just now"),
        pytest.param(T - 30, {"interval_s": 30}, False, id="the report says how long its interval is"),
        pytest.param(T - 29, {"interval_s": 30}, True, id="within that interval"),
        pytest.param(LONG_AGO, {"updated_s": None}, True, id="everything is later than a report without a time"),
        pytest.param(-LONG_AGO, {"updated_s": None}, True, id="also what was before all time"),
        pytest.param(-LONG_AGO, {"updated_s": -10}, False, id="a clock that is far off"),
        pytest.param(T, {"interval_s": 0}, False, id="with the report, where intervals are empty"),
    ],
)
def test_a_young_pod_counts_as_its_estimate(scheduled_s: int | None, said: dict, counts) -> None:
    """Its use was measured over a part of the interval only."""
    assert grown(asked((100, 100), scheduled_s=scheduled_s), **said) is counts


@pytest.mark.parametrize(
    ("args", "pod", "counts"),
    [
        pytest.param(SCHEDULED_60, {"scheduled_s": T - 60}, False, id="60 s after scheduling are over"),
        pytest.param(
            LoadAwareArgs(factors=EXACT.factors, after_scheduled_s=61), {"scheduled_s": T - 60}, True, id="one is left"
        ),
        pytest.param(
            LoadAwareArgs(factors=EXACT.factors, after_scheduled_s=1),
            {"scheduled_s": T, "interval_s": 0},
            True,
            id="one second is some",
        ),
        pytest.param(INITIALIZED_60, {"initialized_s": T - 60}, False, id="60 s after initialization are over"),
        pytest.param(INITIALIZED_60, {"initialized_s": T - 59}, True, id="one of these is left"),
        pytest.param(INITIALIZED_60, {}, False, id="not initialized, and no time after scheduling"),
        pytest.param(BOTH, {"initialized_s": T - 60}, False, id="initialization stands instead of scheduling"),
        pytest.param(BOTH, {"scheduled_s": T - 599}, True, id="unless it is not known"),
        pytest.param(BOTH, {"scheduled_s": T - 600}, False, id="then scheduling counts as ever"),
        pytest.param(
            LoadAwareArgs(factors=EXACT.factors, after_scheduled_s=-5, after_initialized_s=-5),
            {"initialized_s": T + 100},
            False,
            id="negative is never",
        ),
        pytest.param(
            LoadAwareArgs(factors=EXACT.factors, after_scheduled_s=1, after_initialized_s=1),
            {"initialized_s": T},
            True,
            id="one second since initialization, too",
        ),
        pytest.param(
            LoadAwareArgs(factors=EXACT.factors, after_scheduled_s=1), {"scheduled_s": T - 60}, False, id="long over"
        ),
    ],
)
def test_a_pod_counts_as_its_estimate_until_its_deadline(args: LoadAwareArgs, pod: dict, counts) -> None:
    said = {"scheduled_s": T - 600, "interval_s": 60} | pod
    interval_s = said.pop("interval_s")

    assert grown(asked((100, 100), **said), args=args, interval_s=interval_s) is counts


@pytest.mark.parametrize(
    ("args", "pod", "counts"),
    [
        pytest.param(OWN, {"custom_after_scheduled_s": 601}, True, id="the pod's own time after scheduling"),
        pytest.param(OWN, {"custom_after_scheduled_s": 0, "scheduled_s": T - 61}, False, id="its own 0 is never"),
        pytest.param(OWN, {"custom_after_scheduled_s": -1, "scheduled_s": T - 599}, False, id="negative is not set"),
        pytest.param(
            BOTH,
            {"custom_after_scheduled_s": 0, "custom_after_initialized_s": 0},
            False,
            id="not allowed: 600 s after scheduling are over",
        ),
        pytest.param(BOTH, {"custom_after_scheduled_s": 3600}, False, id="not allowed: its own time is not heard"),
        pytest.param(
            OWN, {"custom_after_initialized_s": 3600, "initialized_s": T - 600}, True, id="its own, initialized"
        ),
        pytest.param(
            OWN,
            {"custom_after_initialized_s": 0, "custom_after_scheduled_s": 601, "initialized_s": T - 600},
            True,
            id="its own 0 leaves the time after scheduling",
        ),
        pytest.param(
            OWN, {"custom_after_initialized_s": -1, "initialized_s": T - 59}, True, id="negative is the cluster's 60"
        ),
    ],
)
def test_a_pods_own_times_count_where_that_is_allowed(args: LoadAwareArgs, pod: dict, counts) -> None:
    assert grown(asked((100, 100), **({"scheduled_s": T - 600} | pod)), args=args) is counts


@pytest.mark.parametrize(
    ("used", "everyone"),
    [
        pytest.param({}, (1100, 1200), id="not measured: all of it"),
        pytest.param({"a": (40, 50)}, (1060, 1150), id="what is missing to the estimate"),
        pytest.param({"a": (140, 50)}, (1000, 1150), id="resource by resource"),
        pytest.param({"a": (0, 0)}, (1100, 1200), id="idle"),
        pytest.param({"b": (40, 50)}, (1100, 1200), id="another pod's use is not its"),
    ],
)
def test_a_young_pod_adds_what_its_use_lacks(used: dict, everyone: tuple[int, int]) -> None:
    assert load(report((1000, 1000), used), asked((100, 200), scheduled_s=T)).everyone == everyone


def test_a_pod_that_was_not_measured_counts_however_old() -> None:
    assert load(report((1000, 1000)), asked((100, 200), scheduled_s=LONG_AGO)).everyone == (1100, 1200)


def test_use_is_found_by_namespace_and_name() -> None:
    elsewhere = report((1000, 1000), {"a": (40, 40)})
    elsewhere = NodeReport(updated_s=T, node=elsewhere.node, pods={("other", "a"): elsewhere.pods["default", "a"]})

    assert load(elsewhere, asked((100, 100), scheduled_s=LONG_AGO)).everyone == (1100, 1100)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_terminated_pods_do_not_count(phase: str) -> None:
    found = load(report((1000, 1000), {"a": (40, 40)}), asked((100, 100), phase=phase))

    assert (found.everyone, found.prod, found.node_full) == ((1000, 1000), (0, 0), (0, 0))


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "of tomorrow"])
def test_all_other_pods_count(phase: str) -> None:
    assert load(report((1000, 1000)), asked((100, 100), phase=phase)).prod == (100, 100)


def test_without_use_of_the_node_all_estimates_count() -> None:
    """Measured pods and old ones, too."""
    pods = [
        asked((100, 10), name="a", scheduled_s=LONG_AGO),
        asked((200, 20), name="b", of_class="koord-batch", scheduled_s=LONG_AGO),
    ]
    found = load(report(None, {"a": (40, 4), "b": (50, 5)}), *pods)

    assert found.everyone == found.node_full == (300, 30)
    assert found.prod == (40, 4)
    assert [(because.of, because.bound, because.terms) for because in found.because[:2]] == [
        ("existing_estimated_all/cpu_milli", "estimates", {"estimates_milli": 300, "existing_milli": 300}),
        ("existing_estimated_all/memory_bytes", "estimates", {"estimates_bytes": 30, "existing_bytes": 30}),
    ]


def test_production_is_what_production_pods_use() -> None:
    """Not what batch pods use, nor pods that are measured but not assigned here."""
    pods = [
        asked((100, 10), name="a", scheduled_s=LONG_AGO),
        asked((100, 10), name="b", scheduled_s=LONG_AGO),
        asked((200, 20), name="c", of_class="koord-batch"),
        asked((200, 20), name="d", of_class="koord-mid"),
    ]
    found = load(report((1000, 1000), {"a": (40, 4), "b": (50, 5), "c": (60, 6), "z": (70, 7)}), *pods)

    assert found.prod == (90, 9)
    assert found.everyone == (1000 + 140 + 200, 1000 + 14 + 20)


def test_a_production_pod_measured_as_another_class_counts_in_full_as_production() -> None:
    """For the node as a whole its use is its use."""
    old = asked((100, 10), scheduled_s=LONG_AGO)
    found = load(report((1000, 1000), {"a": (40, 4)}, prod=False), old)

    assert (found.everyone, found.prod) == ((1000, 1000), (100, 10))


def test_what_the_system_uses_counts_as_production_where_that_is_set() -> None:
    pods = [asked((100, 10), scheduled_s=T)]
    measured = report((1000, 1000), {"a": (40, 4)}, system=(7, 5))
    including = LoadAwareArgs(factors=EXACT.factors, prod_include_system=True)

    assert load(measured, *pods).prod == (100, 10)
    assert load(measured, *pods, args=including).prod == (107, 15)
    assert load(report(None, {"a": (40, 4)}, system=(7, 5)), *pods, args=including).prod == (100, 10)


def test_the_arithmetic_is_told_for_both_views() -> None:
    including = LoadAwareArgs(factors=EXACT.factors, prod_include_system=True)
    found = load(report((1000, 2000), {"a": (40, 4)}, system=(7, 5)), asked((100, 10)), args=including)

    assert [(because.of, because.bound, because.terms) for because in found.because] == [
        (
            "existing_estimated_all/cpu_milli",
            "usage",
            {"used_milli": 1000, "expected_more_milli": 60, "existing_milli": 1060},
        ),
        (
            "existing_estimated_all/memory_bytes",
            "usage",
            {"used_bytes": 2000, "expected_more_bytes": 6, "existing_bytes": 2006},
        ),
        (
            "existing_estimated_prod/cpu_milli",
            "usage",
            {"system_milli": 7, "used_milli": 40, "expected_more_milli": 60, "existing_milli": 107},
        ),
        (
            "existing_estimated_prod/memory_bytes",
            "usage",
            {"system_bytes": 5, "used_bytes": 4, "expected_more_bytes": 6, "existing_bytes": 15},
        ),
    ]


RECORDED = {("p95", 300): (500, 50), ("p95", 600): (700, 70), ("p50", 900): (200, 20)}


@pytest.mark.parametrize(
    ("recorded", "wanted", "seen"),
    [
        pytest.param(RECORDED, ("p95", 300), (560, 56), id="the one of that kind and duration"),
        pytest.param(RECORDED, ("p95", 0), (760, 76), id="duration 0: the longest of that kind"),
        pytest.param(RECORDED, ("avg", 0), (1060, 1006), id="of a kind never recorded: plain use"),
        pytest.param(RECORDED, ("p99", 0), (1060, 1006), id="of another never recorded"),
        pytest.param(RECORDED, ("p95", 900), (100, 10), id="no such duration: all estimates, and no use at all"),
        pytest.param(RECORDED, ("avg", 300), (100, 10), id="no such kind, but a duration"),
        pytest.param(None, ("p95", 0), (1060, 1006), id="nothing recorded: plain use"),
        pytest.param({("p95", 0): (1, 1)}, ("p95", 0), (61, 7), id="recorded without a duration"),
    ],
)
def test_a_statistic_stands_for_the_nodes_use(
    recorded: dict | None, wanted: tuple[str, int], seen: tuple[int, int]
) -> None:
    found = load(report((1000, 1000), {"a": (40, 4)}, aggregated=recorded), asked((100, 10)))

    assert found.seen(Aggregation(*wanted)) == seen


def test_views_by_name() -> None:
    found = load(report((1000, 1000), {"a": (40, 4)}), asked((100, 10)), asked((5, 5), name="b", of_class="koord-mid"))

    assert (found.seen("node"), found.seen("prod")) == ((1065, 1011), (100, 10))


def test_a_statistic_of_a_node_without_use_is_all_estimates() -> None:
    assert load(report(None), asked((100, 10))).seen(Aggregation("p95")) == (100, 10)


@pytest.mark.parametrize(
    ("updated_s", "expiration_s", "is_expired"),
    [
        pytest.param(T - 179, 180, False, id="179 of 180 s"),
        pytest.param(T - 180, 180, True, id="180 s"),
        pytest.param(T + 5, 180, False, id="of the future"),
        pytest.param(T - 9999, 0, False, id="0 never expires"),
        pytest.param(T - 9999, -1, False, id="less neither"),
        pytest.param(T - 1, 1, True, id="1 s"),
        pytest.param(T, 1, False, id="just now"),
        pytest.param(None, 180, True, id="without a time"),
        pytest.param(None, 0, True, id="without a time, whatever is set"),
    ],
)
def test_a_report_expires(updated_s: int | None, expiration_s: int, is_expired) -> None:
    assert expired(report(updated_s=updated_s), T, expiration_s) is is_expired


@given(reported=reports, found=pods_there, args=all_args, seed=st.integers(0, 2**16))
def test_the_order_of_pods_and_of_metrics_does_not_matter(
    reported: NodeReport, found: tuple[LoadAwarePod, ...], args: LoadAwareArgs, seed: int
) -> None:
    shuffle = random.Random(seed).sample
    other = NodeReport(
        updated_s=reported.updated_s,
        interval_s=reported.interval_s,
        node=reported.node,
        pods=dict(shuffle(list(reported.pods.items()), len(reported.pods))),
    )
    system = args.prod_include_system
    one = existing_load(reported, assigned(found, args), prod_include_system=system)
    two = existing_load(other, assigned(tuple(shuffle(found, len(found))), args), prod_include_system=system)

    assert one.because == two.because
    assert (one.everyone, one.prod, one.node_delta, one.node_full) == (
        two.everyone,
        two.prod,
        two.node_delta,
        two.node_full,
    )


@given(reported=reports, found=pods_there, one_more=pods("e"), args=all_args)
def test_one_more_pod_never_lowers_a_load(
    reported: NodeReport, found: tuple[LoadAwarePod, ...], one_more: LoadAwarePod, args: LoadAwareArgs
) -> None:
    before = load(reported, *found, args=args)
    after = load(reported, *found, one_more, args=args)
    views = ["node", "prod", Aggregation("p95", 300), Aggregation("p50", 0)]

    for view in views:
        assert all(more >= less for more, less in zip(after.seen(view), before.seen(view), strict=True))
    assert after.node_full >= Amounts()


@given(reported=reports, found=pods_there, args=all_args)
def test_the_terms_add_up_to_the_result(
    reported: NodeReport, found: tuple[LoadAwarePod, ...], args: LoadAwareArgs
) -> None:
    existing = load(reported, *found, args=args)
    results = []
    for because in existing.because:
        *parts, result = because.terms.values()
        assert sum(parts) == result
        results.append(result)

    assert results == [*existing.everyone, *existing.prod]
