"""A histogram that takes many ages at once reads as one that takes them one by one."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from slacktide.streams.engine.metrics import Ages

BOUNDS_MS = (5, 20, 1_000)


@given(st.lists(st.lists(st.integers(0, 3_000))))
def test_many_ages_at_once_are_counted_as_one_by_one(turns: list[list[int]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    bounds_s = [bound_ms / 1_000 for bound_ms in BOUNDS_MS]
    ages = Ages("age_seconds", "How old.", buckets=bounds_s, registry=ours)
    single = Histogram("age_seconds", "How old.", buckets=bounds_s, registry=theirs)
    for turn in turns:
        ages.observe_all(turn)
        for age_ms in turn:
            single.observe(age_ms / 1_000)

    assert samples(ours) == samples(theirs)


def samples(registry: CollectorRegistry) -> list[tuple[str, float]]:
    """But for when each series began, which only the library's own states."""
    lines = [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]
    return [(line.rpartition(" ")[0], round(float(line.rpartition(" ")[2]), 6)) for line in lines if line[0] != "#"]
