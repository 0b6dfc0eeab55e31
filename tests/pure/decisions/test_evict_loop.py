"""The eviction loop: several features, one count of what is released."""

import pytest

from slacktide.streams.decisions.evict.evict_candidates import Amounts, EvictPod
from slacktide.streams.decisions.evict.evict_tasks import EvictTask, Kind, Release, evict
from testbed.evict_cases import be, evicted

A, B, C, D = (be(name) for name in "abcd")
OLD = be("old", already_evicted=True)


def task(
    to_release: Amounts, candidates: list[tuple[EvictPod, Amounts]], *, feature: str = "F", kind: Kind = "used"
) -> EvictTask:
    """Each candidate with what it frees; any other pod frees nothing for this task."""
    status = "release" if to_release else "nothing_to_release"
    frees = dict(candidates)
    return EvictTask(
        feature=feature,
        kind=kind,
        release=Release(status=status, amounts=to_release, because=()),
        candidates=tuple(frees),
        frees=lambda pod: frees.get(pod, {}),
    )


def each(amount: int, *pods: EvictPod, resource: str = "mem_bytes") -> list[tuple[EvictPod, Amounts]]:
    return [(pod, {resource: amount}) for pod in pods]


@pytest.mark.parametrize(
    ("target", "victims"),
    [
        pytest.param(10, "a", id="one is just enough"),
        pytest.param(11, "ab", id="one more where one byte is missing"),
        pytest.param(20, "ab", id="two"),
        pytest.param(99, "abc", id="all of them, if that is not enough"),
        pytest.param(0, "", id="a target of 0 needs nobody"),
    ],
)
def test_candidates_go_in_order_until_enough_is_released(target: int, victims: str) -> None:
    assert evicted(evict([task({"mem_bytes": target}, each(10, A, B, C))])) == list(victims)


def test_a_pod_that_is_known_to_free_nothing_goes_too() -> None:
    """So best-effort pods without a metric: the one resource that they may free is missing."""
    assert evicted(evict([task({"mem_bytes": 10}, [*each(0, A), *each(10, B, C)])])) == ["a", "b"]


def test_a_pod_evicted_before_counts_and_is_no_victim_again() -> None:
    assert evicted(evict([task({"mem_bytes": 20}, each(10, A, OLD, B))])) == ["a"]
    assert evicted(evict([task({"mem_bytes": 10}, each(10, OLD, B))])) == []
    assert evicted(evict([task({"mem_bytes": 10}, each(10, A, OLD))])) == ["a"]


def test_a_resource_that_is_released_claims_no_further_victims() -> None:
    """Else every batch pod would go before the first mid pod that is needed."""
    batch, mid = {"resource": "batch_mem_bytes"}, {"resource": "mid_mem_bytes"}
    both = task({"batch_mem_bytes": 5, "mid_mem_bytes": 15}, [*each(10, A, B, **batch), *each(10, C, D, **mid)])

    assert evicted(evict([both])) == ["a", "c", "d"]


def test_a_pod_of_nothing_that_is_asked_for_stays() -> None:
    assert evicted(evict([task({"batch_mem_bytes": 5}, [(A, {}), *each(9, B, resource="mid_mem_bytes")])])) == []


def test_what_one_feature_releases_the_next_need_not() -> None:
    first, second = task({"mem_bytes": 10}, each(10, A)), task({"mem_bytes": 20}, each(10, A, B, C), feature="G")

    done = evict([first, second])

    assert [(victim.pod, victim.feature) for victim in done.victims] == [(A, "F"), (B, "G")]


def test_used_and_requested_are_counted_side_by_side() -> None:
    used, requested = task({"mem_bytes": 10}, each(10, A)), task({"mem_bytes": 10}, each(10, B), kind="request")

    assert evicted(evict([used, requested])) == ["a", "b"]


def test_a_victim_of_one_feature_counts_for_the_other_kind_too() -> None:
    used = task({"mem_bytes": 10}, each(10, A))
    requested = task({"batch_mem_bytes": 10}, each(10, A, B, resource="batch_mem_bytes"), kind="request")

    assert evicted(evict([used, requested])) == ["a"]


def test_features_that_count_the_same_of_a_victim_count_it_once_and_the_larger() -> None:
    first = task({"mem_bytes": 5}, [(A, {"mem_bytes": 7}), (B, {"mem_bytes": 2})])
    second = task({"mem_bytes": 10}, [(A, {"mem_bytes": 3}), (B, {"mem_bytes": 4}), *each(9, C)], feature="G")

    done = evict([first, second])

    assert evicted(done) == ["a", "b"]
    assert done.because[-1].terms["used_mem_released_bytes"] == 7 + 4


def test_a_feature_that_wants_nothing_counts_nothing() -> None:
    idle = task({"mem_bytes": 0}, each(100, A))
    wanting = task({"mem_bytes": 20}, each(10, A, B), feature="G")

    assert evicted(evict([idle, wanting])) == ["a", "b"]


def test_two_pods_of_one_name_are_two_pods() -> None:
    assert evicted(evict([task({"mem_bytes": 20}, each(10, be("a"), be("a")))])) == ["a", "a"]


@pytest.mark.parametrize(
    ("tasks", "bound", "terms"),
    [
        pytest.param([], "no_shortage", {"evicted_pods": 0}, id="no feature"),
        pytest.param([task({}, each(1, A))], "no_shortage", {"evicted_pods": 0}, id="nothing to release"),
        pytest.param([task({"mem_bytes": 0}, each(1, A))], "no_shortage", {"evicted_pods": 0}, id="an amount of 0"),
        pytest.param(
            [task({"mem_bytes": 20}, each(10, OLD, A))],
            "released",
            {"used_mem_target_bytes": 20, "used_mem_released_bytes": 20, "evicted_pods": 1},
            id="just enough, partly from before",
        ),
        pytest.param(
            [task({"mem_bytes": 20}, each(10**9, A))],
            "released",
            {"used_mem_target_bytes": 20, "used_mem_released_bytes": 10**9, "evicted_pods": 1},
            id="more than enough",
        ),
        pytest.param(
            [
                task({"cpu_milli": 5}, [], kind="request"),
                task({"cpu_milli": 9, "batch_cpu_milli": 0, "mid_cpu_milli": 1}, each(9, A, resource="cpu_milli")),
                task({"cpu_milli": 7}, []),
            ],
            "too_few_candidates",
            {
                "request_cpu_target_milli": 5,
                "request_cpu_released_milli": 0,
                "used_cpu_target_milli": 9,
                "used_cpu_released_milli": 9,
                "used_mid_cpu_target_milli": 1,
                "used_mid_cpu_released_milli": 0,
                "evicted_pods": 1,
            },
            id="not enough of each, the larger target of two",
        ),
    ],
)
def test_the_outcome_sets_what_is_released_against_what_was_wanted(
    tasks: list[EvictTask], bound: str, terms: dict
) -> None:
    outcome = evict(tasks).because[-1]

    assert (outcome.of, outcome.bound) == ("evicted_pods", bound)
    assert list(outcome.terms.items()) == list(terms.items())
