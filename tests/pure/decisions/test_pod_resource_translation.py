"""CPU and memory under the names of a pod's class."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.admission.admitted_pod import AdmittedPod, priority_class_of, translated
from testbed.profile_cases import BATCH_CPU, BATCH_MEM, FREE_CPU, FREE_MEM, MID_CPU, MID_MEM, container, pod, pods


def test_asking_for_less_than_nothing_is_asking_for_nothing() -> None:
    assert priority_class_of(pod(containers=(container("a", -1, None),))) == "koord-batch"


def test_the_overhead_of_a_runtime_class_stays_as_the_api_server_wants_it() -> None:
    before = pod(priority=5_500, overhead={"cpu": 250}, kept={"spec": {"runtimeClassName": "kata"}})

    after = translated(before).pod
    assert after.overhead == {"cpu": 250}
    assert BATCH_CPU in after.containers[0].requests


def _total(given_pod: AdmittedPod, kind: str) -> Counter:
    """CPU and memory of all classes together."""
    total: Counter = Counter()
    for one in (*given_pod.init_containers, *given_pod.containers):
        for name, amount in getattr(one, kind).items():
            total[name.rpartition("/")[2].rpartition("-")[2]] += amount
    return total


def _native_only(given_pod: AdmittedPod) -> AdmittedPod:
    def only(amounts: dict) -> dict:
        return {name: amount for name, amount in amounts.items() if "kubernetes.io" not in name}

    def all_of(containers: tuple) -> tuple:
        return tuple(replace(one, requests=only(one.requests), limits=only(one.limits)) for one in containers)

    return replace(
        given_pod, init_containers=all_of(given_pod.init_containers), containers=all_of(given_pod.containers)
    )


@given(given_pod=pods.map(_native_only), free=st.booleans())
def test_nothing_is_lost_or_won(given_pod: AdmittedPod, *, free: bool) -> None:
    """Limits stay in total; requests stay, or grow to what was limited only."""
    after = translated(given_pod, free_class_enable=free).pod

    assert _total(after, "limits") == _total(given_pod, "limits")
    filled = sum(
        amount
        for one in (*given_pod.init_containers, *given_pod.containers)
        for name, amount in one.limits.items()
        if name in ("cpu", "memory") and name not in one.requests
    )
    untouched = after == given_pod
    assert sum(_total(after, "requests").values()) == sum(_total(given_pod, "requests").values()) + (
        0 if untouched else filled
    )


@given(given_pod=pods, free=st.booleans())
def test_a_second_time_changes_nothing(given_pod: AdmittedPod, *, free: bool) -> None:
    once = translated(replace(given_pod, priority=5_500), free_class_enable=free).pod

    assert translated(once, free_class_enable=free).pod == once


@given(given_pod=pods, free=st.booleans())
def test_the_terms_are_the_amounts(given_pod: AdmittedPod, *, free: bool) -> None:
    done = translated(given_pod, free_class_enable=free)
    names = {"batch_cpu_milli": BATCH_CPU, "batch_memory_bytes": BATCH_MEM, "mid_cpu_milli": MID_CPU,
             "mid_memory_bytes": MID_MEM, "free_cpu_milli": FREE_CPU, "free_memory_bytes": FREE_MEM}  # fmt: skip

    for because in done.because[1:]:
        *where, figure = because.of.split("/")
        amounts = done.pod.overhead
        if where != ["overhead"]:
            (one,) = (one for one in getattr(done.pod, where[0]) if one.name == where[1])
            amounts = getattr(one, where[2])
        assert list(because.terms)[-1] == figure
        assert because.terms[figure] == amounts[names[figure]]
