"""CPU and memory under the names of a pod's class."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.admission.admitted_pod import AdmittedPod
from slacktide.streams.decisions.admission.pod_resource_translation import priority_class_of, translated
from slacktide.streams.decisions.because import Because
from testbed.profile_cases import (
    BATCH_CPU,
    BATCH_MEM,
    FREE_CPU,
    FREE_MEM,
    GIB,
    MID_CPU,
    MID_MEM,
    container,
    pod,
    pods,
)

BE, LS = {"koordinator.sh/qosClass": "BE"}, {"koordinator.sh/qosClass": "LS"}


@pytest.mark.parametrize(
    ("given_pod", "expected"),
    [
        pytest.param(pod(priority=5_500), "koord-batch", id="by number"),
        pytest.param(pod(priority=7_500, labels=BE), "koord-mid", id="the number before the QoS class"),
        pytest.param(
            pod(priority=7_500, labels={"koordinator.sh/priority-class": "koord-batch"}), "koord-batch",
            id="the label before the number",
        ),
        pytest.param(
            pod(priority=7_500, labels=BE | {"koordinator.sh/priority-class": "odd"}), "koord-batch",
            id="a label of no class hides the number",
        ),
        pytest.param(pod(labels=BE), "koord-batch", id="by QoS label"),
        pytest.param(pod(labels=LS, containers=(container("a", None, None),)), "koord-prod",
                     id="a QoS label before what is asked for"),
        pytest.param(pod(), "koord-prod", id="asking for native resources is production"),
        pytest.param(pod(containers=(container("a", None, None),)), "koord-batch", id="asking for nothing is batch"),
        pytest.param(pod(containers=(container("a", 0, 0),)), "koord-batch", id="asking for 0 is asking for nothing"),
        pytest.param(pod(containers=(container("a", -1, None),)), "koord-batch", id="as is less than that"),
        pytest.param(pod(containers=(container("a", 0, 1),)), "koord-prod", id="a byte is something"),
        pytest.param(pod(containers=(container("a", None, None, limits={"cpu": 1}),)), "koord-prod", id="or a limit"),
        pytest.param(pod(containers=(), init_containers=(container(),)), "koord-prod", id="also of an init container"),
        pytest.param(pod(containers=(), overhead={"cpu": 100}), "koord-batch", id="overhead is not asking"),
        pytest.param(pod(containers=(container("a", None, None, requests={BATCH_CPU: 1}),)), "koord-batch",
                     id="batch resources are not native ones"),
    ],
)  # fmt: skip
def test_the_class_of_a_pod(given_pod: AdmittedPod, expected: str) -> None:
    assert priority_class_of(given_pod) == expected


@pytest.mark.parametrize(
    ("priority", "names"),
    [
        pytest.param(5_500, (BATCH_CPU, BATCH_MEM), id="batch"),
        pytest.param(7_500, (MID_CPU, MID_MEM), id="mid"),
        pytest.param(9_500, ("cpu", "memory"), id="production keeps native names"),
        pytest.param(3_500, ("cpu", "memory"), id="so does free"),
    ],
)
def test_amounts_move_to_the_names_of_the_class(priority: int, names: tuple[str, str]) -> None:
    """In containers, init containers and overhead; what has no class's name stays."""
    gpu = {"example.com/gpu": 1}
    before = pod(
        priority=priority,
        init_containers=(container("init", 100, 5),),
        containers=(container("a", requests={"cpu": 1_500, "memory": GIB} | gpu, limits={"cpu": 2_000}),),
        overhead={"cpu": 10, "memory": 7} | gpu,
    )
    cpu, mem = names

    after = translated(before).pod
    assert after.init_containers[0].requests == {cpu: 100, mem: 5}
    assert after.containers[0].requests == {cpu: 1_500, mem: GIB} | gpu
    assert after.containers[0].limits == {cpu: 2_000}
    assert after.overhead == {cpu: 10, mem: 7} | gpu
    assert (after == before) is (priority in (9_500, 3_500))


def test_the_overhead_of_a_runtime_class_stays_as_the_api_server_wants_it() -> None:
    before = pod(priority=5_500, overhead={"cpu": 250}, kept={"spec": {"runtimeClassName": "kata"}})

    after = translated(before).pod
    assert after.overhead == {"cpu": 250}
    assert BATCH_CPU in after.containers[0].requests


def test_free_is_a_class_of_its_own_where_it_is_switched_on() -> None:
    """Only then; the other classes do not change by it."""
    free, batch = pod(priority=3_500), pod(priority=5_500)

    assert translated(free).pod == free
    assert translated(free, free_class_enable=True).pod.containers[0].requests == {FREE_CPU: 1_000, FREE_MEM: GIB}
    assert translated(batch, free_class_enable=True) == translated(batch)


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        pytest.param({}, {"cpu": 5, "memory": 7}, ({BATCH_CPU: 5, BATCH_MEM: 7}, {BATCH_CPU: 5, BATCH_MEM: 7}),
                     id="what is limited is requested"),
        pytest.param({"cpu": 3}, {"cpu": 5, "memory": 7}, ({BATCH_CPU: 3, BATCH_MEM: 7}, {BATCH_CPU: 5, BATCH_MEM: 7}),
                     id="unless it is requested already"),
        pytest.param({"cpu": 0}, {"cpu": 5}, ({BATCH_CPU: 0}, {BATCH_CPU: 5}), id="if with 0"),
        pytest.param({"cpu": 3}, {}, ({BATCH_CPU: 3}, {}), id="what is requested is not limited"),
        pytest.param({}, {BATCH_CPU: 5}, ({BATCH_CPU: 5}, {BATCH_CPU: 5}), id="a batch limit is requested, too"),
        pytest.param({}, {MID_CPU: 5}, ({}, {MID_CPU: 5}), id="another class's limit is not"),
        pytest.param({"cpu": 3, BATCH_CPU: 9}, {}, ({BATCH_CPU: 3}, {}), id="native gives way to no batch amount"),
        pytest.param({BATCH_CPU: 9}, {"cpu": 5}, ({BATCH_CPU: 9}, {BATCH_CPU: 5}), id="a batch request stays"),
    ],
)  # fmt: skip
def test_requests_and_limits(requests: dict, limits: dict, expected: tuple[dict, dict]) -> None:
    only = container(requests=requests, limits=limits)

    (after,) = translated(pod(priority=5_500, containers=(only,))).pod.containers
    assert (after.requests, after.limits) == expected


def test_each_moved_amount_is_told() -> None:
    given_pod = pod(
        priority=5_500,
        init_containers=(container("init", None, 5),),
        containers=(container("a", requests={"cpu": 3, BATCH_CPU: 9}, limits={BATCH_MEM: 7}),),
        overhead={"cpu": 1},
    )

    assert list(translated(given_pod).because) == [
        Because(of="resources", bound="batch", terms={}),
        Because(of="init_containers/init/requests/batch_memory_bytes", bound="moved",
                terms={"memory_bytes": 5, "batch_memory_bytes": 5}),
        Because(of="containers/a/requests/batch_cpu_milli", bound="overwritten",
                terms={"before_batch_cpu_milli": 9, "cpu_milli": 3, "batch_cpu_milli": 3}),
        Because(of="containers/a/requests/batch_memory_bytes", bound="from_limit",
                terms={"limit_batch_memory_bytes": 7, "batch_memory_bytes": 7}),
        Because(of="overhead/batch_cpu_milli", bound="moved", terms={"cpu_milli": 1, "batch_cpu_milli": 1}),
    ]  # fmt: skip
    assert translated(pod()).because == (Because(of="resources", bound="native", terms={}),)
    limited = pod(priority=7_500, containers=(container("a", None, None, limits={"cpu": 4}),))
    assert [(one.of, one.bound) for one in translated(limited).because] == [
        ("resources", "mid"),
        ("containers/a/limits/mid_cpu_milli", "moved"),
        ("containers/a/requests/mid_cpu_milli", "from_limit"),
    ]


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
