"""What of a node's batch resources is written to it."""

import pytest

from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.resources.batch_resource_publish import Allocation, Published, batch_resource_publish

GIVEN = Resources(batch_cpu_milli=1_000, batch_mem_bytes=8_000)


def yarn(cpu_milli: int, mem_bytes: int, priority_class: str = "koord-batch") -> Allocation:
    amounts = Resources(batch_cpu_milli=cpu_milli, batch_mem_bytes=mem_bytes)
    return Allocation(priority_class=priority_class, resources=amounts)


def written(published: Published) -> tuple:
    assert published.allocatable is not None
    return published.allocatable.batch_cpu_milli, published.allocatable.batch_mem_bytes


@pytest.mark.parametrize(
    ("ratio", "cpu_milli"),
    [
        (None, 1_000), ("1.5", 1_500), ("1.0005", 1_001), ("1.00000001", 1_000), ("2", 2_000), ("1", 1_000),
        ("1.0", 1_000), ("0.5", 1_000), ("-3", 1_000), ("abc", 1_000), ("", 1_000), ("inf", 1_000), ("1e999", 1_000),
        ("1.2e0", 1_200),
    ],
)  # fmt: skip
def test_cpu_is_amplified_by_a_ratio_above_one_and_rounded_up(ratio: str | None, cpu_milli: int) -> None:
    published = batch_resource_publish(GIVEN, ratio, None)

    assert written(published) == (cpu_milli, 8_000)
    assert published.origin.batch_cpu_milli == cpu_milli


def test_what_other_schedulers_gave_away_of_batch_is_taken_off_last() -> None:
    published = batch_resource_publish(
        GIVEN, "2", [yarn(300, 1_000), yarn(200, 0), yarn(9, 9, "koord-mid"), yarn(9, 9, "")]
    )

    assert written(published) == (1_500, 7_000)
    assert (published.origin.batch_cpu_milli, published.origin.batch_mem_bytes) == (2_000, 8_000)
    assert [one.bound for one in published.because] == ["amplified", "formula"]
    assert list(published.because[0].terms.items()) == [
        ("calculated_milli", 1_000), ("normalization_ratio", 2.0), ("origin_milli", 2_000),
        ("third_party_milli", 500), ("published_milli", 1_500),
    ]  # fmt: skip


def test_more_given_away_than_there_is_leaves_nothing() -> None:
    published = batch_resource_publish(GIVEN, "1.5", [yarn(1_501, 8_000)])

    assert written(published) == (0, 0)
    assert [one.bound for one in published.because] == ["exhausted", "formula"]


def test_a_ratio_of_one_is_no_amplification() -> None:
    assert "normalization_ratio" not in batch_resource_publish(GIVEN, "1.0", None).because[0].terms


def test_a_degraded_node_has_both_removed() -> None:
    published = batch_resource_publish(None, "2", [yarn(1, 1)])

    assert published.allocatable is None
    assert (published.origin.batch_cpu_milli, published.origin.batch_mem_bytes) == (0, 0)
    assert [(one.of, one.bound) for one in published.because] == [
        ("batch_cpu_milli", "degraded"), ("batch_memory_bytes", "degraded")
    ]  # fmt: skip


def test_an_amount_that_is_absent_is_nothing() -> None:
    empty = Allocation(priority_class="koord-batch", resources=Resources())

    assert written(batch_resource_publish(Resources(), "2", [empty])) == (0, 0)
    assert [one.terms for one in batch_resource_publish(Resources(), None, [empty]).because] == [
        {"origin_milli": 0, "third_party_milli": 0, "published_milli": 0},
        {"origin_bytes": 0, "third_party_bytes": 0, "published_bytes": 0},
    ]
