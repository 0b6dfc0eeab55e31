"""Counters to rates."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.cgroup.parse import Counters, PodCounters, rates
from testbed.vectors import each_row

SECOND_NS = 1_000_000_000


def counters(mono_s: float, cpu_ns: int | None = 0, **pods: tuple[int, ...]) -> Counters:
    """With pods' CPU, periods and throttled periods."""
    known = {uid: PodCounters(*one) for uid, one in pods.items()}
    return Counters(mono_ns=int(mono_s * SECOND_NS), cpu_ns=cpu_ns, pods=known)


@each_row("before", "now", "interval_ms", "cpu_milli", "pods", "missing")
def test_rates_are_since_the_previous_reading(before, now, interval_ms, cpu_milli, pods, missing) -> None:
    rate = rates(None if before is None else counters(**before), counters(**now))

    assert (rate.interval_ms, rate.cpu_milli) == (interval_ms, cpu_milli)
    seen = [(pod.cpu_milli, pod.periods, pod.throttled_periods) for pod in rate.pods.values()]
    assert seen == [(*pod, None, None)[:3] for pod in pods]
    assert {one.what: one.why for one in rate.missing} == missing


figures = st.one_of(st.none(), st.integers(0, 10**15))
all_pods = st.dictionaries(
    st.sampled_from("abc"), st.builds(PodCounters, cpu_ns=figures, periods=figures, throttled_periods=figures)
)
readings = st.builds(Counters, mono_ns=st.integers(0, 10**13), cpu_ns=figures, pods=all_pods)


@given(st.one_of(st.none(), readings), readings)
def test_rates_are_never_negative_and_each_unknown_one_has_a_reason(before: Counters | None, now: Counters) -> None:
    rate = rates(before, now)

    known = [rate.cpu_milli]
    for pod in rate.pods.values():
        known += [pod.cpu_milli, pod.periods, pod.throttled_periods]
    assert all(value is None or value >= 0 for value in known)
    assert rate.pods.keys() == now.pods.keys()
    assert rate.cpu_milli is not None or now.cpu_ns is None or rate.missing
