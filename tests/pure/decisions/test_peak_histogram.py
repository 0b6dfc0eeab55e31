"""Peaks of a usage in which old samples weigh less."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.forecast import PeakCheckpoint
from slacktide.streams.decisions.prediction.peak_histogram import (
    CPU_BUCKETS,
    EPSILON,
    MEM_BUCKETS,
    PERCENTILES,
    YEAR_1_MS,
    PeakHistogram,
)

HOUR_MS = 3_600_000
HALF_LIFE_MS = 12 * HOUR_MS
AT_MS = 1_780_012_800_000
"""A whole number of half-lives after year 1."""
BOTH = [pytest.param(CPU_BUCKETS, id="cpu"), pytest.param(MEM_BUCKETS, id="memory")]

cores = st.floats(0, 2_000) | st.floats(0, 2)
hours = st.floats(0, 100).map(lambda hour: round(hour * HOUR_MS))
samples = st.lists(st.tuples(cores, hours), min_size=1, max_size=30)


def histogram(*added: tuple[float, int], buckets=CPU_BUCKETS) -> PeakHistogram:
    """Of samples, each a value and how long after the first moment it was taken."""
    new = PeakHistogram(buckets=buckets, half_life_ms=HALF_LIFE_MS)
    for value, after_ms in added:
        new.add(value, at_ms=AT_MS + after_ms)
    return new


def peaks(of: PeakHistogram) -> dict[str, int]:
    return {name: of.peak(share).amount for name, share in PERCENTILES.items()}


def weights(of: PeakHistogram) -> list[float]:
    return [of.weight(bucket) for bucket in range(of.buckets.count)]


def restored(checkpoint: PeakCheckpoint | None) -> PeakHistogram | None:
    return PeakHistogram.restored(checkpoint, CPU_BUCKETS, half_life_ms=HALF_LIFE_MS)


def test_the_buckets_are_those_of_the_reference() -> None:
    assert (CPU_BUCKETS.count, MEM_BUCKETS.count) == (158, 205)
    assert [int(CPU_BUCKETS.start(bucket) * 1000) for bucket in range(6)] == [0, 25, 51, 78, 107, 138]
    assert [int(MEM_BUCKETS.start(bucket)) for bucket in range(4)] == [0, 5_242_880, 10_747_903, 16_528_179]
    assert CPU_BUCKETS.start(157) > 1024 > CPU_BUCKETS.start(155)
    assert MEM_BUCKETS.start(204) > 2**41 > MEM_BUCKETS.start(202)


@pytest.mark.parametrize("buckets", BOTH)
def test_a_bucket_holds_what_is_between_its_start_and_the_next(buckets) -> None:
    for bucket in range(buckets.count - 1):
        low, high = buckets.start(bucket), buckets.start(bucket + 1)

        assert low < high
        assert buckets.bucket_of((low + high) / 2) == bucket
        assert buckets.bucket_of(low + (high - low) / 1_000) == bucket
        assert buckets.bucket_of(high - (high - low) / 1_000) == bucket
    assert buckets.bucket_of(buckets.start(buckets.count - 1) * 1_000) == buckets.count - 1


@pytest.mark.parametrize("buckets", BOTH)
@given(values=st.lists(st.floats(0, 1e15), min_size=2))
def test_a_larger_usage_is_in_no_lower_bucket(buckets, values) -> None:
    found = [buckets.bucket_of(value) for value in sorted(values)]

    assert found == sorted(found)
    assert set(found) <= set(range(buckets.count))


def test_without_a_sample_there_is_no_peak() -> None:
    new = histogram()

    assert new.empty
    assert set(peaks(new).values()) == {0}
    assert (new.peak(0.95).bound, new.peak(0.95).terms) == ("empty", {"total_weight": 0.0})
    assert new.checkpoint() == PeakCheckpoint(reference_ms=YEAR_1_MS, total_weight=0.0, bucket_weights={})


@pytest.mark.parametrize(
    ("value", "peak"),
    [
        pytest.param(0.0, 25, id="idle reads as the end of the first bucket"),
        pytest.param(0.0249, 25, id="so does what is within it"),
        pytest.param(2.0, 2_001, id="a usage reads as the end of its bucket"),
    ],
)
def test_one_sample_is_every_percentile(value, peak) -> None:
    assert set(peaks(histogram((value, 0))).values()) == {peak}


def test_above_the_top_the_start_of_the_last_bucket_is_taken() -> None:
    peak = histogram((1e6, 0)).peak(1.0)

    assert peak.bound == "last_bucket"
    assert peak.amount == int(CPU_BUCKETS.start(157) * 1000)


def test_the_terms_are_the_arithmetic() -> None:
    new = histogram(*[(0.1, 0)] * 9, (3.0, 0))

    peak = new.peak(0.9)
    assert (peak.bound, peak.terms) == (
        "bucket",
        {"total_weight": 10.0, "threshold_weight": 9.0, "bucket": 3, "peak_milli": 107},
    )
    assert new.peak(0.91).terms["bucket"] == CPU_BUCKETS.bucket_of(3.0)
    assert list(histogram((1.0, 0), buckets=MEM_BUCKETS).peak(0.5).terms)[-1] == "peak_bytes"


def test_a_sample_weighs_twice_as_much_as_one_a_half_life_older() -> None:
    new = histogram((1.0, 0), (2.0, HALF_LIFE_MS), (3.0, -HALF_LIFE_MS))

    assert [new.weight(CPU_BUCKETS.bucket_of(value)) for value in (3.0, 1.0, 2.0)] == [0.5, 1.0, 2.0]
    assert new.total == 3.5


def test_a_sample_too_old_to_count_is_in_the_whole_weight_alone() -> None:
    new = histogram((1.0, 0), (30.0, -14 * HALF_LIFE_MS))

    assert new.peak(1.0).amount == histogram((1.0, 0)).peak(1.0).amount
    assert new.total == 1.0 + 2.0**-14


def test_many_light_samples_count_together() -> None:
    light = (30.0, -14 * HALF_LIFE_MS)

    assert histogram((1.0, 0), light).high == CPU_BUCKETS.bucket_of(1.0)
    assert histogram((1.0, 0), light, light).high == CPU_BUCKETS.bucket_of(30.0)


@pytest.mark.parametrize(
    ("after_ms", "reference_ms"),
    [
        pytest.param(0, 0, id="on a half-life"),
        pytest.param(HALF_LIFE_MS // 2 - 1, 0, id="just below half of one"),
        pytest.param(HALF_LIFE_MS // 2, HALF_LIFE_MS, id="half of one rounds up"),
    ],
)
def test_the_reference_is_the_half_life_nearest_to_the_first_sample(after_ms, reference_ms) -> None:
    assert histogram((1.0, after_ms)).reference_ms == AT_MS + reference_ms


def test_half_lives_count_from_year_1() -> None:
    new = PeakHistogram(buckets=CPU_BUCKETS, half_life_ms=7 * HOUR_MS)
    new.add(1.0, at_ms=AT_MS)

    assert (new.reference_ms - YEAR_1_MS) % (7 * HOUR_MS) == 0
    assert new.reference_ms % (7 * HOUR_MS) != 0
    assert abs(new.reference_ms - AT_MS) <= 7 * HOUR_MS // 2


def test_after_100_half_lives_the_reference_moves_and_what_was_there_is_forgotten() -> None:
    kept = histogram((9.0, 0), (1.0, 100 * HALF_LIFE_MS))
    moved = histogram((9.0, 0), (1.0, 100 * HALF_LIFE_MS + 1))

    assert (kept.reference_ms, kept.total) == (AT_MS, 1.0 + 2.0**100)
    assert moved.reference_ms == AT_MS + 100 * HALF_LIFE_MS
    assert moved.total == pytest.approx(1.0)
    assert (kept.low, kept.high) == (CPU_BUCKETS.bucket_of(1.0), CPU_BUCKETS.bucket_of(9.0))
    assert moved.low == moved.high == CPU_BUCKETS.bucket_of(1.0)


def test_a_move_keeps_what_still_weighs_and_narrows_to_it() -> None:
    new = histogram((1.0, 0), *[(value, 99 * HALF_LIFE_MS) for value in (2.0, 3.0)], (20.0, 0))
    new.add(2.5, at_ms=AT_MS + 101 * HALF_LIFE_MS)

    assert (new.low, new.high) == (CPU_BUCKETS.bucket_of(2.0), CPU_BUCKETS.bucket_of(3.0))
    assert [new.weight(CPU_BUCKETS.bucket_of(value)) for value in (2.0, 2.5, 3.0)] == [0.25, 1.0, 0.25]
    assert new.weight(CPU_BUCKETS.bucket_of(20.0)) == 2.0**-101
    assert new.total == 1.5


def test_a_bucket_counts_from_just_its_smallest_weight_on() -> None:
    new = histogram()
    for value in (1.0, 9.0):
        new.add(value, at_ms=AT_MS, weight=EPSILON)
    assert not new.empty
    assert (new.low, new.high) == (CPU_BUCKETS.bucket_of(1.0), CPU_BUCKETS.bucket_of(9.0))


def test_a_move_keeps_what_has_just_the_smallest_weight() -> None:
    new = histogram()
    for value in (1.0, 9.0):
        new.add(value, at_ms=AT_MS, weight=EPSILON * 2.0**101)
    new.add(5.0, at_ms=AT_MS + 101 * HALF_LIFE_MS, weight=0.0)

    assert (new.low, new.high) == (CPU_BUCKETS.bucket_of(1.0), CPU_BUCKETS.bucket_of(9.0))
    assert new.weight(new.low) == new.weight(new.high) == EPSILON


@pytest.mark.parametrize(("quarters", "halvings"), [(0, 101), (1, 101), (2, 100), (3, 100)])
def test_a_move_from_between_two_half_lives_scales_by_the_nearest_power(quarters, halvings) -> None:
    """A reference that was loaded may lie anywhere. From just between, it is the smaller power."""
    reference_ms = AT_MS + quarters * HALF_LIFE_MS // 4
    new = restored(PeakCheckpoint(reference_ms=reference_ms, total_weight=2.0**100, bucket_weights={3: 1}))
    assert new is not None
    new.add(5.0, at_ms=AT_MS + 101 * HALF_LIFE_MS, weight=0.0)

    assert new.total == 2.0 ** (100 - halvings)


def test_a_histogram_of_which_nothing_is_left_is_empty() -> None:
    new = histogram((1.0, 0))
    new.add(2.0, at_ms=AT_MS + 2_000 * HALF_LIFE_MS, weight=0.0)

    assert new.empty
    assert (new.low, new.high, new.total) == (157, 0, 0.0)


def test_a_checkpoint_holds_the_shape_in_10_000ths_of_the_heaviest_bucket() -> None:
    new = histogram(*[(0.1, 0)] * 4, (3.0, 0), (5.0, -15 * HALF_LIFE_MS))

    assert new.checkpoint() == PeakCheckpoint(
        reference_ms=AT_MS,
        total_weight=5.0 + 2.0**-15,
        bucket_weights={3: 10_000, CPU_BUCKETS.bucket_of(3.0): 2_500},
    )


@pytest.mark.parametrize(
    ("light", "kept"),
    [pytest.param(2, {0: 10_000, 157: 1}, id="half rounds up"), pytest.param(1, {0: 10_000}, id="less is forgotten")],
)
def test_a_bucket_below_a_20_000th_of_the_heaviest_is_forgotten(light, kept) -> None:
    new = histogram()
    new.add(0.0, at_ms=AT_MS, weight=40_000.0)
    new.add(1e6, at_ms=AT_MS, weight=float(light))

    assert new.checkpoint().bucket_weights == kept


def test_a_checkpoint_spreads_the_whole_weight_over_what_was_kept() -> None:
    new = restored(PeakCheckpoint(reference_ms=AT_MS, total_weight=6.0, bucket_weights={3: 10_000, 7: 20_000}))

    assert new is not None
    assert (new.weight(3), new.weight(7), new.total, new.reference_ms) == (2.0, 4.0, 6.0, AT_MS)
    assert (new.low, new.high, new.empty) == (3, 7, False)


def test_a_checkpoint_may_list_its_buckets_in_any_order() -> None:
    """As Go writes them: by their text, 10 before 9."""
    new = restored(PeakCheckpoint(reference_ms=AT_MS, total_weight=6.0, bucket_weights={10: 1, 100: 2, 9: 3}))

    assert new is not None
    assert [new.weight(bucket) for bucket in (9, 10, 100)] == [3.0, 1.0, 2.0]
    assert (new.low, new.high, new.empty) == (9, 100, False)


@pytest.mark.parametrize("shape", [{}, {3: 0}, {0: 0, 157: 0}])
def test_a_checkpoint_without_weights_keeps_the_reference_alone(shape) -> None:
    new = restored(PeakCheckpoint(reference_ms=AT_MS, total_weight=6.0, bucket_weights=shape))

    assert new is not None
    assert (new.reference_ms, new.total, new.empty, new.low, new.high) == (AT_MS, 0.0, True, 157, 0)


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(None, id="none"),
        pytest.param(PeakCheckpoint(reference_ms=0, total_weight=-0.1, bucket_weights={3: 1}), id="negative weight"),
        pytest.param(PeakCheckpoint(reference_ms=0, total_weight=1.0, bucket_weights={3: 1, 158: 1}), id="too high"),
        pytest.param(PeakCheckpoint(reference_ms=0, total_weight=1.0, bucket_weights={-1: 1, 3: 1}), id="too low"),
    ],
)
def test_a_checkpoint_that_cannot_be_is_refused(refused) -> None:
    assert restored(refused) is None
    assert restored(PeakCheckpoint(reference_ms=0, total_weight=0.0, bucket_weights={0: 1, 157: 1})) is not None


@pytest.mark.parametrize("total", [0.0, 5e-324, 1e-310])
def test_weights_too_small_to_compare_are_no_shape(total) -> None:
    new = restored(PeakCheckpoint(reference_ms=AT_MS, total_weight=total, bucket_weights={3: 1}))

    assert new is not None
    assert new.checkpoint().bucket_weights == {}


@given(samples)
def test_a_higher_share_is_no_lower_peak_and_none_is_below_the_first_bucket(added) -> None:
    new = histogram(*added)
    read = [new.peak(share).amount for share in (0.0, 0.1, 0.5, 0.6, 0.9, 0.95, 0.98, 1.0)]

    assert read == sorted(read)
    assert read[0] >= 25


@given(samples)
def test_the_maximum_is_at_least_every_sample_and_at_most_5_percent_more(added) -> None:
    """So where no sample is so old that it no longer counts; a bucket's end is 5% and 25 millicores away at most."""
    top = max(value for value, _ in added)
    peak = histogram(*added).peak(1.0).amount

    if top < 1024:
        assert top * 1000 - 1 <= peak <= top * 1050 + 26


@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(added, random) -> None:
    """Beside the last digits of a sum, where the reference is that of the same first sample."""
    one, other = histogram(*added), histogram(added[0], *random.sample(added[1:], len(added) - 1))

    assert one.total == pytest.approx(other.total)
    assert weights(one) == pytest.approx(weights(other))
    assert peaks(one)["max"] == peaks(other)["max"]


@given(samples, st.integers(0, 20))
def test_time_alone_changes_no_shape(added, half_lives) -> None:
    """The same samples some half-lives later have the same peaks."""
    later = [(value, after_ms + half_lives * HALF_LIFE_MS) for value, after_ms in added]

    assert peaks(histogram(*added)) == peaks(histogram(*later))


@given(samples)
def test_an_old_usage_counts_less_the_later_a_new_one_comes(added) -> None:
    """Decay: the share of what was there falls as the next sample comes later."""
    shares = []
    for half_lives in range(12, 40):
        new = histogram(*added)
        before = new.total
        new.add(5.0, at_ms=AT_MS + half_lives * HALF_LIFE_MS)
        shares.append(before / new.total)

    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]


@given(samples)
def test_nothing_is_ever_negative_or_infinite(added) -> None:
    new = histogram(*added, (1.0, 5_000 * HALF_LIFE_MS), (1.0, -5_000 * HALF_LIFE_MS))

    assert all(0 <= weight < math.inf for weight in new.weights)
    assert 0 <= sum(new.weights) <= new.total * (1 + 1e-9)


@given(samples)
def test_a_checkpoint_keeps_the_weight_and_saved_again_it_is_the_same(added) -> None:
    """What is forgotten is forgotten at once: a second save and load changes no bucket by more than its rounding."""
    kept = histogram(*added).checkpoint()
    once = restored(kept)
    assert once is not None
    again = once.checkpoint()

    assert (again.reference_ms, again.total_weight) == (kept.reference_ms, kept.total_weight)
    assert sum(once.weights) == pytest.approx(kept.total_weight)
    assert max(kept.bucket_weights.values()) == 10_000
    assert all(abs(again.bucket_weights.get(bucket, 0) - weight) <= 1 for bucket, weight in kept.bucket_weights.items())
    assert again.bucket_weights.keys() <= kept.bucket_weights.keys()


@given(samples, samples)
def test_after_a_restart_samples_go_on_as_before(before, after) -> None:
    """Beside what the checkpoint forgot: less than a thousandth of the weight for each bucket."""
    whole = histogram(*before)
    loaded = restored(whole.checkpoint())
    assert loaded is not None
    for value, after_ms in after:
        for each in (whole, loaded):
            each.add(value, at_ms=AT_MS + after_ms)

    assert loaded.total == pytest.approx(whole.total)
    assert weights(loaded) == pytest.approx(weights(whole), abs=whole.total * 0.01)
