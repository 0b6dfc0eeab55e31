"""Published figures never fall below what runs there asked for."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.resources.publishing import published_floor
from testbed.node_loads import pods_and_metrics


@given(pods_and_metrics(), st.none() | st.integers(0, 50_000))
def test_what_runs_always_fits_into_what_is_published(mixed: tuple, figure: int | None) -> None:
    pods = [one for one in mixed[0] if one.phase in {"Running", "Pending"}]
    published = published_floor({"batch_cpu_milli": figure}, mixed[0]).figures["batch_cpu_milli"]

    assert (published or 0) >= sum(one.requests.batch_cpu_milli or 0 for one in pods)
    assert (published or 0) >= (figure or 0)
