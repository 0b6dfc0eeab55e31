"""Whether a pod may go to a node, by the load that the node would have with it."""

import pytest

from slacktide.streams.decisions.load.load_aware_estimator import (
    Aggregation,
    Amounts,
    LoadAwareArgs,
    Percents,
    Thresholds,
)
from slacktide.streams.decisions.load.load_aware_existing import ExistingLoad
from slacktide.streams.decisions.load.load_aware_scheduling import Filtered, filter_pod, gate_for
from testbed.load_aware_cases import GIB, asked, load, report

UNSET = Thresholds()
EXPIRED = "node_metric_expired"


def filtered(
    existing: ExistingLoad | None,
    estimate: tuple[int, int] = (0, 0),
    *,
    cluster: Thresholds = UNSET,
    node: Thresholds = UNSET,
    allocatable: tuple[int, int] = (1000, 1000),
    prod: bool = False,
    daemonset: bool = False,
    stale: bool = False,
    **args: object,
) -> Filtered:
    """What the filter says of a node; ``args``: further settings."""
    settings = LoadAwareArgs(thresholds=cluster, **args)
    gate = gate_for(prod=prod, load=existing, allocatable=Amounts(*allocatable), custom=node, args=settings)
    return filter_pod(Amounts(*estimate), gate, settings, daemonset=daemonset, stale=stale)


def on(kind: str | None, duration_s: int = 0, *, cpu: int = 45, mem: int = 46) -> Thresholds:
    """Thresholds on a statistic."""
    return Thresholds(aggregated=Percents(cpu, mem), aggregation=kind and Aggregation(kind, duration_s))


VIEWS = {7: "node", 8: "prod", 5: "p95", 6: "p50"}
EACH_VIEW = load(
    report((7, 7), {"a": (8, 8)}, aggregated={("p95", 300): (5, 5), ("p50", 600): (6, 6), ("p50", 300): (9, 9)}),
    asked((1, 1), scheduled_s=0),
)
"""A load of another size in each view."""
CLUSTER = Thresholds(
    usage=Percents(51, 52),
    prod=Percents(41, 42),
    aggregated=Percents(45, 46),
    aggregation=Aggregation("p95", 300),
)


@pytest.mark.parametrize(
    ("cluster", "node", "prod", "view", "thresholds"),
    [
        pytest.param(UNSET, UNSET, False, "node", [65, 95], id="by default CPU 65 % and memory 95 %"),
        pytest.param(UNSET, UNSET, True, "node", [65, 95], id="also for production"),
        pytest.param(Thresholds(usage=Percents(51, 52)), UNSET, True, "node", [51, 52], id="the cluster's"),
        pytest.param(
            Thresholds(usage=Percents(51, 0)), UNSET, False, "node", [51], id="0 is not checked, nor defaulted"
        ),
        pytest.param(Thresholds(usage=Percents(0, 52)), UNSET, False, "node", [52], id="0 for CPU neither"),
        pytest.param(CLUSTER, UNSET, True, "prod", [41, 42], id="production has its own"),
        pytest.param(CLUSTER, UNSET, False, "p95", [45, 46], id="for others those on a statistic go first"),
        pytest.param(
            Thresholds(usage=Percents(51, 52), prod=Percents(0, 0)),
            UNSET,
            True,
            "node",
            [51, 52],
            id="production's own are all 0: it has none",
        ),
        pytest.param(
            Thresholds(usage=Percents(51, 52), prod=Percents(0, 1)), UNSET, True, "prod", [1], id="one of them is some"
        ),
        pytest.param(
            on("p50"), UNSET, True, "p50", [45, 46], id="the longest duration, for production without its own"
        ),
        pytest.param(on(None), UNSET, False, "node", [65, 95], id="thresholds without a statistic do not count"),
        pytest.param(
            Thresholds(aggregation=Aggregation("p95", 300)),
            UNSET,
            False,
            "node",
            [65, 95],
            id="nor a statistic without thresholds",
        ),
        pytest.param(
            Thresholds(usage=Percents(51, 52)),
            Thresholds(usage=Percents(70, 71)),
            False,
            "node",
            [70, 71],
            id="the node's own usage thresholds",
        ),
        pytest.param(CLUSTER, Thresholds(usage=Percents(70, 71)), False, "p95", [45, 46], id="only of their kind"),
        pytest.param(
            CLUSTER, Thresholds(prod=Percents(70, 71)), True, "prod", [70, 71], id="the node's, for production"
        ),
        pytest.param(
            CLUSTER, Thresholds(prod=Percents(0, 0)), True, "p95", [45, 46], id="the node's are 0: production has none"
        ),
        pytest.param(CLUSTER, on("p50", cpu=1, mem=2), False, "p50", [1, 2], id="the node's on a statistic"),
        pytest.param(CLUSTER, on(None, cpu=1, mem=2), False, "p95", [45, 46], id="but not without a statistic"),
        pytest.param(
            CLUSTER, on("p50", cpu=1, mem=2), True, "prod", [41, 42], id="nor for production that has its own"
        ),
    ],
)
def test_which_thresholds_hold_and_what_for(
    cluster: Thresholds, node: Thresholds, prod, view: str, thresholds: list[int]
) -> None:
    found = filtered(EACH_VIEW, cluster=cluster, node=node, prod=prod)

    assert found.bound == "pass"
    assert {VIEWS[check.limit.existing] for check in found.checks} == {view}
    assert [check.limit.threshold_pct for check in found.checks] == thresholds


@pytest.mark.parametrize(
    ("used", "estimate", "reason"),
    [
        pytest.param((600, 0), (50, 0), None, id="exactly the threshold of 65 %"),
        pytest.param((600, 0), (54, 0), None, id="65.4 %, which rounds down"),
        pytest.param((600, 0), (55, 0), "usage_exceeds_threshold:cpu", id="65.5 %, which rounds up"),
        pytest.param((0, 900), (0, 50), None, id="exactly 95 %"),
        pytest.param((0, 900), (0, 55), "usage_exceeds_threshold:memory", id="95.5 %"),
        pytest.param((900, 1000), (0, 0), "usage_exceeds_threshold:cpu", id="CPU is checked first"),
        pytest.param((600, 1000), (100, 0), "usage_exceeds_threshold:cpu", id="also where only the pod fills it"),
        pytest.param((9000, 0), (0, 0), "usage_exceeds_threshold:cpu", id="a node that uses more than it has"),
    ],
)
def test_the_load_with_the_pod_must_not_exceed_a_threshold(
    used: tuple[int, int], estimate: tuple[int, int], reason: str | None
) -> None:
    found = filtered(load(report(used)), estimate)

    assert (found.reject_reason, found.bound) == (reason, reason or "pass")
    assert found.schedulable is (reason is None)


def test_a_reason_names_the_statistic() -> None:
    full = load(report((0, 0), aggregated={("p95", 300): (0, 1000)}))

    assert filtered(full, cluster=on("p95")).reject_reason == "aggregated_usage_exceeds_threshold:memory"


def test_a_young_pods_estimate_counts_on_top_of_a_statistic() -> None:
    existing = load(report((0, 0), aggregated={("p95", 300): (400, 0)}), asked((60, 0)))

    assert filtered(existing, cluster=on("p95")).reject_reason == "aggregated_usage_exceeds_threshold:cpu"


@pytest.mark.parametrize(
    ("allocatable", "reason"),
    [
        pytest.param((0, 0), None, id="nothing allocatable is not checked"),
        pytest.param((0, 10), "usage_exceeds_threshold:memory", id="each resource on its own"),
    ],
)
def test_what_is_not_allocatable_is_not_checked(allocatable: tuple[int, int], reason: str | None) -> None:
    assert filtered(load(report((900, 900))), allocatable=allocatable).reject_reason == reason


ALL_ZERO = Thresholds(usage=Percents(0, 0))
FULL = load(report((900, 900)))
NO_NODE = load(report(None), asked((900, 900)))


@pytest.mark.parametrize(
    ("existing", "said", "reason", "bound"),
    [
        pytest.param(FULL, {"daemonset": True}, None, "daemonset", id="a daemon set goes everywhere"),
        pytest.param(FULL, {"daemonset": True, "stale": True}, None, "daemonset", id="whatever the report"),
        pytest.param(FULL, {"cluster": ALL_ZERO}, None, "no_thresholds", id="no threshold at all"),
        pytest.param(FULL, {"cluster": ALL_ZERO, "stale": True}, None, "no_thresholds", id="then age is no matter"),
        pytest.param(FULL, {"node": ALL_ZERO}, None, "no_thresholds", id="the node's own are all 0"),
        pytest.param(FULL, {"cluster": on("p95", cpu=0, mem=0)}, None, "no_thresholds", id="those on a statistic are"),
        pytest.param(None, {}, None, "no_metric", id="it never reported"),
        pytest.param(None, {"cluster": ALL_ZERO}, None, "no_thresholds", id="never reported, and nothing to check"),
        pytest.param(NO_NODE, {}, None, "no_node_usage", id="it reported nothing of the node as a whole"),
        pytest.param(NO_NODE, {"cluster": ALL_ZERO}, None, "no_thresholds", id="nothing, and nothing to check"),
        pytest.param(NO_NODE, {"stale": True}, EXPIRED, EXPIRED, id="nothing, and that is too old"),
        pytest.param(FULL, {"stale": True}, EXPIRED, EXPIRED, id="too old to go by"),
        pytest.param(
            FULL, {"stale": True, "schedule_when_expired": True}, None, EXPIRED, id="too old, and pods may come"
        ),
        pytest.param(
            FULL,
            {"stale": True, "filter_expired": False},
            "usage_exceeds_threshold:cpu",
            "usage_exceeds_threshold:cpu",
            id="age is not looked at",
        ),
        pytest.param(
            FULL,
            {"schedule_when_expired": True},
            "usage_exceeds_threshold:cpu",
            "usage_exceeds_threshold:cpu",
            id="young enough: as ever",
        ),
    ],
)
def test_what_goes_before_the_load(existing: ExistingLoad | None, said: dict, reason: str | None, bound: str) -> None:
    found = filtered(existing, **said)

    assert (found.reject_reason, found.bound) == (reason, bound)
    if not found.checks:
        (because,) = found.because
        assert (because.of, because.bound, because.terms) == ("schedulable", bound, {})


def test_each_check_tells_its_arithmetic() -> None:
    cpu, mem = filtered(load(report((600, 900))), (10, 100), allocatable=(1001, 1002)).because

    assert (cpu.of, cpu.bound) == ("schedulable/cpu", "pass")
    assert list(cpu.terms.items()) == [
        ("existing_milli", 600),
        ("pod_milli", 10),
        ("estimated_milli", 610),
        ("allocatable_milli", 1001),
        ("threshold_pct", 65),
        ("used_pct", 61),
    ]
    assert (mem.of, mem.bound) == ("schedulable/memory", "usage_exceeds_threshold:memory")
    assert list(mem.terms.items()) == [
        ("existing_bytes", 900),
        ("pod_bytes", 100),
        ("estimated_bytes", 1000),
        ("allocatable_bytes", 1002),
        ("threshold_pct", 95),
        ("used_pct", 100),
    ]


def test_checks_end_with_the_one_that_rejects() -> None:
    (because,) = filtered(FULL).because

    assert (because.of, because.bound) == ("schedulable/cpu", "usage_exceeds_threshold:cpu")


def test_percents_are_figured_as_doubles() -> None:
    """Half a percent of so large a node is exact there, and rounds up."""
    found = filtered(
        load(report((0, 131 * GIB))), allocatable=(1000, 200 * GIB), cluster=Thresholds(usage=Percents(0, 65))
    )

    assert [check.used_pct for check in found.checks] == [66]
