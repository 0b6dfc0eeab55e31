"""Counters to rates."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.cgroup.parse import NO_PREVIOUS, RESET, Counters, PodCounters, Rates, rates

SECOND_NS = 1_000_000_000


def counters(mono_s: float, cpu_ns: int | None = 0, **pods: PodCounters) -> Counters:
    return Counters(mono_ns=int(mono_s * SECOND_NS), cpu_ns=cpu_ns, pods=pods)


def said(rate: Rates) -> dict[str, str]:
    return {missing.what: missing.why for missing in rate.missing}


def test_a_first_reading_has_no_rates_and_says_so() -> None:
    rate = rates(None, counters(5, 7, a=PodCounters(cpu_ns=1)))

    assert (rate.interval_ms, rate.cpu_milli, rate.pods["a"].cpu_milli) == (0, None, None)
    assert said(rate) == {"rates": NO_PREVIOUS}


def test_one_cpu_busy_for_the_whole_interval_is_1000() -> None:
    before = counters(5, 0, a=PodCounters(cpu_ns=0))
    rate = rates(before, counters(7.5, 5 * SECOND_NS, a=PodCounters(cpu_ns=SECOND_NS)))

    assert (rate.interval_ms, rate.cpu_milli, rate.pods["a"].cpu_milli) == (2500, 2000, 400)
    assert rate.missing == []


def test_a_counter_that_began_anew_is_unknown_once() -> None:
    readings = [counters(at, cpu, a=PodCounters(cpu_ns=cpu)) for at, cpu in [(1, 900), (2, 100), (3, 600)]]
    second, third = rates(readings[0], readings[1]), rates(readings[1], readings[2])

    assert (second.cpu_milli, second.pods["a"].cpu_milli) == (None, None)
    assert said(second) == {"node cpu": RESET, "pod a cpu": RESET}
    assert third.cpu_milli is not None
    assert third.missing == []


def test_a_new_pod_has_no_rates_yet() -> None:
    rate = rates(counters(1), counters(2, 0, new=PodCounters(cpu_ns=5)))

    assert rate.pods["new"].cpu_milli is None
    assert said(rate) == {"pod new": NO_PREVIOUS}


def test_a_pod_that_ended_has_no_rates_and_no_note() -> None:
    rate = rates(counters(1, 0, old=PodCounters(cpu_ns=5)), counters(2))

    assert rate.pods == {}
    assert rate.missing == []


def test_periods_of_a_pod_that_no_limit_ever_held_are_not_known() -> None:
    pod = PodCounters(cpu_ns=0, periods=0, throttled_periods=0)
    rate = rates(counters(1, 0, a=pod), counters(2, 0, a=pod))

    assert (rate.pods["a"].periods, rate.pods["a"].throttled_periods) == (None, None)
    assert rate.missing == []


def test_periods_are_counted_since_the_previous_reading() -> None:
    before = PodCounters(cpu_ns=0, periods=0, throttled_periods=0)
    rate = rates(counters(1, 0, a=before), counters(2, 0, a=PodCounters(cpu_ns=0, periods=10, throttled_periods=4)))

    assert (rate.pods["a"].periods, rate.pods["a"].throttled_periods) == (10, 4)


def test_what_could_not_be_read_before_has_no_rate_now() -> None:
    rate = rates(counters(1, None), counters(2, 5))

    assert rate.cpu_milli is None
    assert said(rate) == {"node cpu": NO_PREVIOUS}


def test_without_time_there_are_no_rates() -> None:
    rate = rates(counters(1, 0), counters(1, 5))

    assert (rate.interval_ms, rate.cpu_milli) == (0, None)
    assert said(rate) == {"rates": "no time has passed since the previous reading"}


def test_more_cpu_than_any_machine_has_is_not_believed() -> None:
    rate = rates(counters(1, 0), counters(2, 10**18))

    assert rate.cpu_milli is None
    assert said(rate) == {"node cpu": "implausible: 1000000000000 millicores"}


figures = st.one_of(st.none(), st.integers(0, 10**15))
pods = st.dictionaries(
    st.sampled_from("abc"), st.builds(PodCounters, cpu_ns=figures, periods=figures, throttled_periods=figures)
)
readings = st.builds(Counters, mono_ns=st.integers(0, 10**13), cpu_ns=figures, pods=pods)


@given(st.one_of(st.none(), readings), readings)
def test_rates_are_never_negative_and_each_unknown_one_has_a_reason(before: Counters | None, now: Counters) -> None:
    rate = rates(before, now)

    known = [rate.cpu_milli]
    for pod in rate.pods.values():
        known += [pod.cpu_milli, pod.periods, pod.throttled_periods]
    assert all(value is None or value >= 0 for value in known)
    assert rate.pods.keys() == now.pods.keys()
    assert rate.cpu_milli is not None or now.cpu_ns is None or rate.missing
