"""Peaks of a usage in which old samples weigh less."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.forecast import PeakCheckpoint
from slacktide.streams.decisions.prediction.peak_models import CPU_BUCKETS, MEM_BUCKETS, PERCENTILES, PeakHistogram
from testbed.plain import plain
from testbed.vectors import stated

HOUR_MS = 3_600_000
HALF_LIFE_MS = 12 * HOUR_MS
AT_MS = 1_780_012_800_000
"""A whole number of half-lives after year 1."""
BOTH = [pytest.param(CPU_BUCKETS, id="cpu"), pytest.param(MEM_BUCKETS, id="memory")]

cores = st.floats(0, 2_000) | st.floats(0, 2)
hours = st.floats(0, 100).map(lambda hour: round(hour * HOUR_MS))
samples = st.lists(st.tuples(cores, hours), min_size=1, max_size=30)


def told(given: dict[str, Any]) -> Any:
    """All that a histogram holds once samples were added, each with its time and perhaps its weight."""
    buckets, half_life_ms = MEM_BUCKETS if given.get("memory") else CPU_BUCKETS, given["half_life_ms"]
    one: PeakHistogram | None = PeakHistogram(buckets=buckets, half_life_ms=half_life_ms)
    if "load" in given:
        kept = msgspec.convert(given["load"], PeakCheckpoint | None, strict=False)
        one = PeakHistogram.restored(kept, buckets, half_life_ms=half_life_ms)
    if one is None:
        return "refused"
    for value, at_ms, *weight in given.get("added", ()):
        one.add(value, at_ms=at_ms, **({"weight": weight[0]} if weight else {}))
    return plain({
        **{name: getattr(one, name) for name in ("empty", "low", "high", "total", "reference_ms")},
        "weights": {bucket: weight for bucket, weight in enumerate(weights(one)) if weight},
        "peaks": {str(share): one.peak(share) for share in (0.0, 0.5, 0.9, 0.91, 0.95, 1.0)},
        "checkpoint": one.checkpoint(),
    })  # fmt: skip


def rounded(text: str) -> float:
    """The last digits of a power may be those of the machine."""
    return float(f"{float(text):.12g}")


@pytest.mark.parametrize(("asked", "expected"), list(stated("peak_histogram")))
def test_a_histogram_holds_what_the_case_says(asked: dict, expected: Any) -> None:
    assert json.loads(json.dumps(told(asked)), parse_float=rounded) == expected


def test_a_checkpoint_with_a_bucket_below_the_first_is_refused() -> None:
    assert restored(PeakCheckpoint(reference_ms=0, total_weight=1.0, bucket_weights={-1: 1, 3: 1})) is None


def histogram(*added: tuple[float, int]) -> PeakHistogram:
    """Of samples, each a value and how long after the first moment it was taken."""
    new = PeakHistogram(buckets=CPU_BUCKETS, half_life_ms=HALF_LIFE_MS)
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
