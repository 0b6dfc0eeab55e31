"""What a pod is expected to use before anybody has measured it."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.load.load_aware_estimator import LoadAwareArgs, LoadAwarePod, estimate, round_half_away
from testbed.load_aware_cases import all_args, asked, pods
from testbed.vectors import each_row


@each_row("value", "rounded")
def test_halves_round_away_from_zero(value: float, rounded: int) -> None:
    assert round_half_away(value) == rounded


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
