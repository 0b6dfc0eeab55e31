"""How well a pod would fit on a node."""

import pytest

from slacktide.streams.decisions.load.load_aware_estimator import Aggregation, Amounts, LoadAwareArgs, Weights
from slacktide.streams.decisions.load.load_aware_existing import ExistingLoad
from slacktide.streams.decisions.load.load_aware_scheduling import Scored, scale_for, score_pod
from testbed.load_aware_cases import asked, load, report

HALF = (500, 200)
"""Of 1000 each: CPU scores 50, memory 80."""


def scored(
    existing: ExistingLoad | None,
    estimate: tuple[int, int] = (0, 0),
    *,
    allocatable: tuple[int, int] = (1000, 1000),
    prod: bool = False,
    stale: bool = False,
    **args: object,
) -> Scored:
    """What the score says of a node; ``args``: settings."""
    scale = scale_for(prod=prod, load=existing, allocatable=Amounts(*allocatable), args=LoadAwareArgs(**args))
    return score_pod(Amounts(*estimate), scale, stale=stale)


@pytest.mark.parametrize(
    ("args", "score"),
    [
        pytest.param({}, 65, id="equal weights by default"),
        pytest.param({"weights": Weights(1, 0)}, 50, id="only CPU"),
        pytest.param({"weights": Weights(0, 1)}, 80, id="only memory"),
        pytest.param({"weights": Weights(3, 1)}, 57, id="(150 + 80) / 4 is 57.5: whole"),
        pytest.param({"dominant_weight": 2}, 50, id="only the scarcest resource, no other by default"),
        pytest.param({"dominant_weight": 2, "weights": Weights(1, 1)}, 57, id="(50 + 80 + 2 x 50) / 4"),
        pytest.param({"dominant_weight": 1, "weights": Weights(0, 1)}, 65, id="scarce though it has no weight itself"),
        pytest.param({"weights": Weights(0, 0)}, 0, id="no weight at all"),
        pytest.param({"dominant_weight": 1, "weights": Weights(0, 0)}, 50, id="only that of the scarcest"),
    ],
)
def test_resources_are_weighed(args: dict, score: int) -> None:
    assert scored(load(report(HALF)), **args).score == score


def test_the_scarcest_may_be_memory() -> None:
    assert scored(load(report((200, 500))), dominant_weight=1).score == 50


@pytest.mark.parametrize(
    ("used", "estimate", "allocatable", "score"),
    [
        pytest.param(0, 0, 1000, 100, id="all free"),
        pytest.param(0, 1, 1000, 99, id="99.9 is 99"),
        pytest.param(400, 100, 1000, 50, id="the pod counts"),
        pytest.param(900, 100, 1000, 0, id="full"),
        pytest.param(900, 101, 1000, 0, id="more than full"),
        pytest.param(0, 0, 0, 0, id="nothing allocatable"),
        pytest.param(10, 0, 0, 0, id="nothing allocatable, and used"),
        pytest.param(0, 1, 3, 66, id="two thirds"),
        pytest.param(0, 0, 1, 100, id="the smallest node, free"),
    ],
)
def test_a_resource_scores_the_share_that_stays_free(used: int, estimate: int, allocatable: int, score: int) -> None:
    cpu = scored(load(report((used, 0))), (estimate, 0), allocatable=(allocatable, 10), weights=Weights(1, 0))
    mem = scored(load(report((0, used))), (0, estimate), allocatable=(10, allocatable), weights=Weights(0, 1))

    assert cpu.score == mem.score == score


P95 = Aggregation("p95", 300)
EACH_VIEW = load(
    report((400, 400), {"a": (200, 200)}, aggregated={("p95", 300): (600, 600), ("p95", 600): (700, 700)}),
    asked((1, 1), scheduled_s=0),
)
"""A load of another size in each view."""


@pytest.mark.parametrize(
    ("prod", "args", "score"),
    [
        pytest.param(False, {}, 60, id="what the node uses"),
        pytest.param(True, {}, 60, id="also for production"),
        pytest.param(True, {"score_prod": True}, 80, id="what production uses, where that is set"),
        pytest.param(False, {"score_prod": True}, 60, id="for production only"),
        pytest.param(False, {"score_aggregation": P95}, 40, id="a statistic"),
        pytest.param(True, {"score_aggregation": P95}, 40, id="for production, too"),
        pytest.param(False, {"score_aggregation": Aggregation("p95")}, 30, id="the longest"),
        pytest.param(
            False, {"score_aggregation": Aggregation("p95", 60)}, 99, id="not recorded: estimates of all pods"
        ),
        pytest.param(
            True, {"score_aggregation": P95, "score_prod": True}, 80, id="production goes before the statistic"
        ),
        pytest.param(False, {"score_aggregation": P95, "score_prod": True}, 40, id="which stays for others"),
    ],
)
def test_the_view_that_is_scored(prod, args: dict, score: int) -> None:
    assert scored(EACH_VIEW, prod=prod, **args).score == score


NO_NODE = load(report(None), asked((1, 1)))


@pytest.mark.parametrize(
    ("existing", "said", "bound"),
    [
        pytest.param(None, {}, "no_metric", id="it never reported"),
        pytest.param(NO_NODE, {}, "no_node_usage", id="it reported nothing of the node as a whole"),
        pytest.param(NO_NODE, {"stale": True}, "node_metric_expired", id="nothing, and too old"),
        pytest.param(load(report()), {"stale": True}, "node_metric_expired", id="too old"),
        pytest.param(
            load(report()),
            {"stale": True, "filter_expired": False},
            "node_metric_expired",
            id="whatever the filter says",
        ),
        pytest.param(load(report()), {"weights": Weights()}, "no_weights", id="nothing weighs"),
        pytest.param(None, {"weights": Weights()}, "no_weights", id="nothing weighs, and it never reported"),
    ],
)
def test_an_unknown_load_scores_0_and_no_figure_is_made_up(
    existing: ExistingLoad | None, said: dict, bound: str
) -> None:
    found = scored(existing, **said)
    (because,) = found.because

    assert (found.score, found.bound) == (0, bound)
    assert (found.pod, found.used, found.scores, found.dominant_score) == ((0, 0), (0, 0), (0, 0), 0)
    assert (because.of, because.bound, because.terms) == ("score", bound, {})


def test_the_arithmetic_is_told_for_each_resource_and_the_total() -> None:
    found = scored(load(report((500, 1200))), (100, 3), dominant_weight=2, weights=Weights(3, 1))

    assert [(because.of, because.bound, list(because.terms.items())) for because in found.because] == [
        (
            "score/cpu",
            "free",
            [
                ("existing_milli", 500),
                ("pod_milli", 100),
                ("used_milli", 600),
                ("allocatable_milli", 1000),
                ("cpu_score", 40),
            ],
        ),
        (
            "score/memory",
            "full",
            [
                ("existing_bytes", 1200),
                ("pod_bytes", 3),
                ("used_bytes", 1203),
                ("allocatable_bytes", 1000),
                ("memory_score", 0),
            ],
        ),
        (
            "score",
            "weighted",
            [
                ("cpu_score", 40),
                ("cpu_weight", 3),
                ("memory_score", 0),
                ("memory_weight", 1),
                ("dominant_score", 0),
                ("dominant_weight", 2),
                ("score", 20),
            ],
        ),
    ]


def test_a_resource_says_why_it_scores_0() -> None:
    cpu, mem, _ = scored(load(report((1000, 10))), allocatable=(1000, 0)).because

    assert (cpu.bound, mem.bound) == ("free", "nothing_allocatable")
