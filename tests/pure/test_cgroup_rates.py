"""Counters to rates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.cgroup.parse import NO_PREVIOUS, RESET, Counters, PodCounters, rates

SECOND_NS = 1_000_000_000


RESET_TWICE = {"node cpu": RESET, "pod a cpu": RESET}
IMPLAUSIBLE = "implausible: 1000000000000 millicores"
NO_TIME = "no time has passed since the previous reading"


def counters(mono_s: float, cpu_ns: int | None = 0, **pods: tuple[int, ...]) -> Counters:
    """With pods' CPU, periods and throttled periods."""
    known = {uid: PodCounters(*one) for uid, one in pods.items()}
    return Counters(mono_ns=int(mono_s * SECOND_NS), cpu_ns=cpu_ns, pods=known)


@pytest.mark.parametrize(
    ("before", "now", "interval_ms", "cpu_milli", "pods", "missing"),
    [
        pytest.param(None, counters(5, 7, a=(1,)), 0, None, [(None,)], {"rates": NO_PREVIOUS}, id="a first reading"),
        pytest.param(
            counters(5, 0, a=(0,)), counters(7.5, 5 * SECOND_NS, a=(SECOND_NS,)), 2_500, 2_000, [(400,)], {},
            id="one CPU busy for the whole interval is 1000",
        ),
        pytest.param(
            counters(1, 900, a=(900,)), counters(2, 100, a=(100,)), 1_000, None, [(None,)], RESET_TWICE,
            id="a counter that began anew is unknown",
        ),
        pytest.param(
            counters(2, 100, a=(100,)), counters(3, 600, a=(600,)), 1_000, 0, [(0,)], {},
            id="a counter that began anew is unknown once",
        ),
        pytest.param(counters(1), counters(2, new=(5,)), 1_000, 0, [(None,)], {"pod new": NO_PREVIOUS}, id="a new pod"),
        pytest.param(counters(1, old=(5,)), counters(2), 1_000, 0, [], {}, id="a pod that ended has no note"),
        pytest.param(
            counters(1, a=(0, 0, 0)), counters(2, a=(0, 0, 0)), 1_000, 0, [(0, None, None)], {},
            id="periods of a pod that no limit ever held are not known",
        ),
        pytest.param(
            counters(1, a=(0, 0, 0)), counters(2, a=(0, 10, 4)), 1_000, 0, [(0, 10, 4)], {},
            id="periods are counted since the previous reading",
        ),
        pytest.param(
            counters(1, None), counters(2, 5), 1_000, None, [], {"node cpu": NO_PREVIOUS},
            id="what could not be read before has no rate now",
        ),
        pytest.param(counters(1), counters(1, 5), 0, None, [], {"rates": NO_TIME}, id="no time"),
        pytest.param(
            counters(1), counters(2, 10**18), 1_000, None, [], {"node cpu": IMPLAUSIBLE},
            id="more CPU than any machine has",
        ),
    ],
)  # fmt: skip
def test_rates_are_since_the_previous_reading(before, now, interval_ms, cpu_milli, pods, missing) -> None:
    rate = rates(before, now)

    assert (rate.interval_ms, rate.cpu_milli) == (interval_ms, cpu_milli)
    seen = [(pod.cpu_milli, pod.periods, pod.throttled_periods) for pod in rate.pods.values()]
    assert seen == [pod if len(pod) == 3 else (*pod, None, None) for pod in pods]
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
