"""What of a pod its zones must provide."""

from hypothesis import given

from slacktide.streams.decisions.numa.topology import (
    Container,
    Pod,
    Step,
    corrected_request,
    effective_request,
    exclusive_cpu_milli,
    steps,
)
from testbed.numa_nodes import GPU, as_read, init, pod, pods


def test_the_reference_takes_the_larger_of_init_and_app_containers_plus_overhead() -> None:
    one = pod(
        {"cpu": 1000, GPU: 0},
        {"cpu": 2000},
        inits=[init({"cpu": 2500, "memory": 7}), init({"memory": 5}, sidecar=True)],
        overhead={"cpu": 10, "ephemeral-storage": 4},
    )

    assert effective_request(one) == {"cpu": 3010, GPU: 0, "memory": 7, "ephemeral-storage": 4}


def test_sidecars_run_beside_app_containers() -> None:
    one = pod({"cpu": 1000}, inits=[init({"cpu": 2000}, sidecar=True), init({"cpu": 500})], overhead={"cpu": 10})

    assert effective_request(one) == {"cpu": 2010}
    assert corrected_request(one) == {"cpu": 3010}


def test_pod_level_requests_replace_those_of_containers() -> None:
    one = pod({"cpu": 1000, GPU: 1}, pod_level={"cpu": 4000})

    assert effective_request(one) == {"cpu": 1000, GPU: 1}
    assert corrected_request(one) == {"cpu": 4000, GPU: 1}
    assert list(steps(one, "container", corrected=True)) == [Step("pod", None, {"cpu": 4000, GPU: 1})]
    assert list(steps(one, "container")) == [Step("app", "a", {"cpu": 1000, GPU: 1})]


def test_the_cpu_manager_adds_up_containers_with_whole_cores_and_no_overhead() -> None:
    app, sidecar = {"cpu": 2000}, init({"cpu": 1000}, sidecar=True)
    assert exclusive_cpu_milli(pod(app, {"cpu": 1500}, {"memory": 3}, overhead={"cpu": 250})) == 2000
    assert exclusive_cpu_milli(pod(app, inits=[sidecar, init({"cpu": 4000}), init({"cpu": 9500})])) == 5000
    assert exclusive_cpu_milli(pod({"cpu": 500}, {"cpu": 500})) == 0


def test_in_container_scope_init_containers_come_first() -> None:
    one = pod({"cpu": 1}, {"cpu": 2}, inits=[init({"cpu": 3}), init({"cpu": 4}, sidecar=True)], overhead={"cpu": 9})

    assert list(steps(one, "container")) == [
        Step("init", "init", {"cpu": 3}),
        Step("sidecar", "sidecar", {"cpu": 4}),
        Step("app", "a", {"cpu": 1}),
        Step("app", "b", {"cpu": 2}),
    ]
    assert list(steps(one, "pod")) == [Step("pod", None, {"cpu": 13})]


@given(pods())
def test_the_corrected_request_is_never_the_smaller(one: Pod) -> None:
    reference, corrected = effective_request(one), corrected_request(one)

    assert reference.keys() == corrected.keys()
    assert all(corrected[name] >= reference[name] for name in reference)
    if not any(each.sidecar for each in one.inits):
        assert corrected == reference


def test_only_a_guaranteed_pod_is_pinned_and_a_container_is_no_sidecar_unless_it_is_named_one() -> None:
    assert [pod({}, qos=qos).guaranteed for qos in ("Guaranteed", "Burstable", "BestEffort")] == [True, False, False]
    assert pod({}, qos=as_read("Guaranteed")).guaranteed
    assert not Container(name="a", requests={}).sidecar
