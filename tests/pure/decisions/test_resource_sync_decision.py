"""Whether a change is large enough to be written."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.resources.publishing import Pair, resource_sync_decision

amounts = st.none() | st.integers(0, 1 << 50)


@given(amounts, st.floats(0, 10))
def test_what_did_not_change_is_never_written(amount: int | None, threshold: float) -> None:
    assert not resource_sync_decision([Pair(of="x", old=amount, new=amount)], threshold).need_sync
