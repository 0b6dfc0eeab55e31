"""Whether a change is large enough to be written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.resources.resource_sync_decision import Pair, resource_sync_decision

amounts = st.none() | st.integers(0, 1 << 50)


@pytest.mark.parametrize(
    ("old", "new", "bound", "need_sync"),
    [
        pytest.param(1_000, 1_100, "within", False, id="a tenth is not enough"),
        pytest.param(1_000, 1_101, "moved", True, id="more than a tenth is"),
        pytest.param(1_000, 899, "moved", True, id="downwards too"),
        pytest.param(1_000, 900, "within", False, id="but not a tenth"),
        pytest.param(0, 1, "moved", True, id="from nothing, anything"),
        pytest.param(0, 0, "within", False, id="nothing stays nothing"),
        pytest.param(None, 5, "appeared", True, id="one that was not published"),
        pytest.param(5, None, "gone", True, id="one that is no longer"),
        pytest.param(None, None, "absent", False, id="one that never was"),
        pytest.param(0, None, "gone", True, id="nothing is not absence"),
    ],
)
def test_a_tenth_by_default(old, new, bound, need_sync) -> None:
    decision = resource_sync_decision([Pair(of="batch_cpu_milli", old=old, new=new)])

    assert (decision.need_sync, decision.because[0].bound) == (need_sync, bound)


def test_the_threshold_is_the_policys() -> None:
    pair = Pair(of="x", old=1_000, new=1_300)

    assert resource_sync_decision([pair], 0.29).need_sync
    assert not resource_sync_decision([pair], 0.3).need_sync


def test_one_resource_of_the_tier_is_enough() -> None:
    still, moved = Pair(of="cpu", old=1, new=1), Pair(of="mem", old=1, new=2)

    assert resource_sync_decision([still, moved]).need_sync
    assert not resource_sync_decision([still, still]).need_sync
    assert not resource_sync_decision([]).need_sync


def test_the_terms_say_how_far_it_moved_and_how_far_it_might_have() -> None:
    (because,) = resource_sync_decision([Pair(of="mem", old=200, new=150)]).because

    assert because.terms == {
        "old": 200, "new": 150, "diff_threshold": 0.1, "moved_thousandths": 50_000.0, "allowed_thousandths": 20_000.0
    }  # fmt: skip
    assert resource_sync_decision([Pair(of="mem", old=7, new=None)]).because[0].terms == {"old": 7}
    assert resource_sync_decision([Pair(of="mem", old=None, new=7)]).because[0].terms == {"new": 7}


@given(amounts, st.floats(0, 10))
def test_what_did_not_change_is_never_written(amount: int | None, threshold: float) -> None:
    assert not resource_sync_decision([Pair(of="x", old=amount, new=amount)], threshold).need_sync
