"""Whether a node's zones can hold a pod, by the reference and as Slacktide decides."""

from dataclasses import replace

import pytest
from hypothesis import given

from slacktide.streams.decisions.numa.filter import FITS, Failure, Filtered, Lack, Node, Placed, numa_filter
from slacktide.streams.decisions.numa.topology import Pod, steps
from testbed.numa_nodes import BATCH_CPU, GPU, KNOWN, init, node, nodes, pod, pods, zone

EIGHT = (zone(0, 8000, memory=8), zone(1, 8000, memory=8))


def corrected(one: Pod, where: Node) -> Filtered:
    return numa_filter(one, where, corrected=True)


def lacks(answer: Filtered) -> list[Lack]:
    assert answer.failure is not None
    return list(answer.failure.lacks)


def zones_of(answer: Filtered) -> list[tuple[int, ...]]:
    assert answer.fits
    return [one.zones for one in answer.placed]


def test_containers_are_placed_one_after_the_other_and_share_zones() -> None:
    answer = numa_filter(pod({"cpu": 6000}, {"cpu": 6000}, {"cpu": 2000}), node(*EIGHT))

    assert answer == Filtered(fits=True, placed=[Placed("a", (0,)), Placed("b", (1,)), Placed("c", (0,))])
    assert not answer.marks_node


def test_a_container_without_a_zone_fails_the_pod_and_marks_the_node() -> None:
    answer = numa_filter(pod({"cpu": 6000}, {"cpu": 9000}), node(*EIGHT))

    assert answer.failure == Failure("cannot align container", "app", "b", (Lack("cpu", "no_zone", 9000, 1, 8000),))
    assert answer.placed == [Placed("a", (0,))]
    assert answer.marks_node
    assert not answer.fits


def test_in_pod_scope_one_zone_holds_all_with_overhead() -> None:
    one = pod({"cpu": 4000}, {"cpu": 4000})

    assert numa_filter(one, node(*EIGHT, scope="pod")).placed == [Placed(None, (0,))]
    over = numa_filter(replace(one, overhead={"cpu": 1}), node(*EIGHT, scope="pod"))
    assert over.failure == Failure("cannot align pod", "pod", None, (Lack("cpu", "no_zone", 8001, 0, 8000),))
    assert numa_filter(replace(one, overhead={"cpu": 1}), node(*EIGHT)).fits


@pytest.mark.parametrize(
    ("sidecar", "message", "kind"),
    [(False, "cannot align init container", "init"), (True, "cannot align sidecar container", "sidecar")],
)
def test_an_init_container_needs_a_zone_and_takes_nothing(sidecar: bool, message: str, kind: str) -> None:  # noqa: FBT001
    big = pod({"cpu": 8000}, {"cpu": 8000}, inits=[init({"cpu": 9000}, sidecar=sidecar)])
    fitting = pod({"cpu": 8000}, {"cpu": 8000}, inits=[init({"cpu": 8000}, sidecar=sidecar)])
    failure = numa_filter(big, node(*EIGHT)).failure

    assert failure is not None
    assert (failure.message, failure.kind, failure.container) == (message, kind, kind)
    assert numa_filter(fitting, node(*EIGHT)).placed == [Placed("a", (0,)), Placed("b", (1,))]


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted"])
def test_the_reference_filters_under_one_policy_only(policy: str) -> None:
    assert numa_filter(pod({"cpu": 90_000}), node(*EIGHT, policy=policy)) == FITS
    assert not numa_filter(pod({"cpu": 90_000}), node(*EIGHT)).fits


def test_a_best_effort_pod_is_looked_at_only_for_its_devices() -> None:
    no_zones = node(zone(0, memory=1))

    assert numa_filter(pod({BATCH_CPU: 1}, qos="BestEffort"), no_zones) == FITS
    assert not numa_filter(pod({BATCH_CPU: 1, GPU: 0}, qos="BestEffort"), no_zones).fits
    assert not numa_filter(pod({BATCH_CPU: 1}, inits=[init({GPU: 0})], qos="BestEffort"), no_zones).fits
    assert not numa_filter(pod({BATCH_CPU: 1}, qos="Burstable"), no_zones).fits


def test_a_topology_that_cannot_be_trusted_refuses_without_a_mark() -> None:
    stale = replace(node(*EIGHT), fresh=False)

    for corrects in (False, True):
        answer = numa_filter(pod({"cpu": 1}), stale, corrected=corrects)
        assert answer == Filtered(fits=False, failure=Failure("invalid node topology data"))
        assert not answer.marks_node
        assert not numa_filter(pod({"cpu": 1}), replace(stale, zones=None), corrected=corrects).fits
        assert numa_filter(pod({}, qos="BestEffort"), stale, corrected=corrects) == FITS


def test_without_topology_every_pod_fits() -> None:
    for corrects in (False, True):
        assert numa_filter(pod({"cpu": 90_000}), replace(node(), zones=None), corrected=corrects) == FITS
        assert not numa_filter(pod({"cpu": 90_000}), node(), corrected=corrects).fits


def test_a_burstable_pod_takes_devices_and_no_cpu() -> None:
    where = node(zone(0, 1000, gpu=1), zone(1, 1000, gpu=1))
    one = pod({"cpu": 9000, GPU: 1}, {"cpu": 9000, GPU: 1}, qos="Burstable")

    assert [placed.zones for placed in numa_filter(one, where).placed] == [(0,), (1,)]


def test_a_sidecar_holds_its_cpus_beside_app_containers() -> None:
    one = pod({"cpu": 8000}, {"cpu": 4000}, inits=[init({"cpu": 6000}, sidecar=True)])

    for kubelet in ({}, KNOWN):
        answer = corrected(one, node(*EIGHT, **kubelet))
        assert lacks(answer)[0].resource == "cpu"
        assert answer.placed == [Placed("sidecar", (0,)), Placed("a", (1,))]
        assert numa_filter(one, node(*EIGHT, **kubelet)).fits
    assert not corrected(pod({"cpu": 4000}, inits=one.inits), node(*EIGHT, scope="pod")).fits


def test_a_plain_init_container_takes_nothing_corrected_either() -> None:
    one = pod({"cpu": 8000}, {"cpu": 8000}, inits=[init({"cpu": 8000})])

    assert zones_of(corrected(one, node(*EIGHT, **KNOWN))) == [(0,), (1,)]


def test_a_container_on_other_zones_than_an_init_container_is_named() -> None:
    one = pod({"cpu": 2000}, {"cpu": 8000}, inits=[init({"cpu": 4000})])

    assert corrected(one, node(*EIGHT, **KNOWN)).moved == ["b"]
    assert corrected(pod({"cpu": 2000}, inits=one.inits), node(*EIGHT, **KNOWN)).moved == []
    assert corrected(one, node(*EIGHT, zone(2, 16_000), scope="pod", **KNOWN)).moved == []


def test_overhead_that_no_container_has_is_named() -> None:
    one = pod({"cpu": 2000}, overhead={"cpu": 100})

    assert corrected(one, node(*EIGHT)).not_charged == {"cpu": 100}
    assert corrected(one, node(*EIGHT, scope="pod")).not_charged == {}


def test_pod_level_requests_are_one_request_in_either_scope() -> None:
    one = pod({}, {"cpu": 1000}, pod_level={"cpu": 9000})

    assert corrected(one, node(*EIGHT)).failure == Failure(
        "cannot align pod", "pod", None, (Lack("cpu", "no_zone", 9000, 0, 8000),)
    )
    assert numa_filter(one, node(*EIGHT)).fits


def test_a_device_of_the_pod_as_a_whole_is_looked_at() -> None:
    one = pod({}, qos="BestEffort", pod_level={GPU: 1})

    assert not corrected(one, node(zone(0, gpu=0))).fits


def test_batch_cpu_refuses_only_where_zones_list_it_and_then_for_best_effort_pods_too() -> None:
    for qos in ("BestEffort", "Burstable", "Guaranteed"):
        one = pod({BATCH_CPU: 4000}, qos=qos)
        for kubelet in ({}, KNOWN):
            assert corrected(one, node(zone(0, 100), **kubelet)).fits
            assert zones_of(corrected(one, node(zone(0, batch=3999), zone(1, batch=4000), **kubelet))) == [(1,)]
            assert lacks(corrected(one, node(zone(0, batch=3999), **kubelet)))[0][2:] == (4000, 0, 3999)


def test_restricted_refuses_what_the_kubelet_would_refuse() -> None:
    one = pod({"cpu": 12_000, "memory": 1})
    answer = corrected(one, node(*EIGHT, policy="restricted"))

    assert answer.marks_node
    assert lacks(answer) == [Lack("cpu", "not_aligned", 12_000, 0, 8000), Lack("memory", "not_aligned", 1, 0, 8)]
    memory_none = node(*EIGHT, policy="restricted", cpu_static=True, memory_static=False)
    assert zones_of(corrected(one, memory_none)) == [(0, 1)]
    assert not corrected(pod(*[{"cpu": 12_000}] * 2), memory_none).fits
    assert zones_of(corrected(pod({"cpu": 12_000}, {"cpu": 4000}), memory_none)) == [(0, 1), (1,)]


def test_best_effort_admits_and_names_what_it_does_not_align() -> None:
    answer = corrected(pod({"cpu": 12_000, "memory": 1}), node(*EIGHT, policy="best-effort"))

    assert answer.fits
    assert not answer.marks_node
    assert [lack.resource for lack in lacks(answer)] == ["cpu", "memory"]
    assert corrected(pod({"cpu": 12_000, "memory": 1}), node(*EIGHT, policy="none")) == FITS


def test_where_the_managers_are_known_a_fraction_of_a_core_needs_no_zone_and_holds_none() -> None:
    where = zone(0, 1000), zone(1, 1000)

    assert not corrected(pod({"cpu": 1500}), node(*where)).fits
    assert not corrected(pod({"cpu": 1500}), node(*where, cpu_static=True)).fits
    assert not corrected(pod({"cpu": 1500}), node(*where, memory_static=True)).fits
    assert zones_of(corrected(pod({"cpu": 1500}, {"cpu": 1000}), node(*where, **KNOWN))) == [(0, 1), (0,)]


def test_in_pod_scope_the_cpu_manager_counts_containers_with_whole_cores_alone() -> None:
    """A fraction of a core beside them, or overhead, makes the sum no fraction that needs no zone."""
    small = node(zone(0, 1000), zone(1, 1000), scope="pod", **KNOWN)

    assert not corrected(pod({"cpu": 2000}, {"cpu": 500}), small).fits
    assert not corrected(pod({"cpu": 2000}, overhead={"cpu": 100}), small).fits
    assert zones_of(corrected(pod({"cpu": 1000}, {"cpu": 500}), small)) == [(0,)]
    assert zones_of(corrected(pod(*[{"cpu": 500}] * 4), small)) == [(0, 1)]
    assert not corrected(pod({"cpu": 500}, pod_level={"cpu": 2000}), small).fits


def test_where_the_managers_are_known_a_zone_without_cpus_serves_a_burstable_pod() -> None:
    one = pod({"cpu": 500, GPU: 1}, qos="Burstable")

    assert not corrected(one, node(zone(0, 8000), zone(1, gpu=1))).fits
    assert zones_of(corrected(one, node(zone(0, 8000), zone(1, gpu=1), **KNOWN))) == [(1,)]


def test_what_the_node_does_not_have_is_refused_under_every_policy_that_filters() -> None:
    absent = "example.com/absent"
    for policy in ("single-numa-node", "restricted"):
        answer = corrected(pod({absent: 2, "cpu": 1000, "a/first": 1}), node(*EIGHT, policy=policy, **KNOWN))
        assert lacks(answer) == [Lack("a/first", "not_on_node", 1), Lack(absent, "not_on_node", 2)]


@given(pods(), nodes())
def test_zones_never_give_more_than_they_have(one: Pod, where: Node) -> None:
    """A Guaranteed pod's containers that were placed, each on one zone, fit there together."""
    for corrects in (False, True):
        answer = numa_filter(one, where, corrected=corrects)
        if not (one.guaranteed and where.kubelet.policy == "single-numa-node" and where.kubelet.cpu_static is None):
            continue
        requests = {step.container: step.request for step in steps(one, where.kubelet.scope, corrected=corrects)}
        for each in where.zones or ():
            held = [requests[placed.container] for placed in answer.placed if placed.zones == (each.id,)]
            for name, free in each.available.items():
                assert sum(request.get(name, 0) for request in held) <= free


@given(pods(), nodes())
def test_an_answer_says_either_where_or_why_not(one: Pod, where: Node) -> None:
    for corrects in (False, True):
        answer = numa_filter(one, where, corrected=corrects)
        assert answer.fits or answer.failure is not None
        assert answer.fits or answer.marks_node
        if answer.failure is not None:
            assert answer.failure.lacks
            assert answer.fits == (where.kubelet.policy == "best-effort")


@given(pods(), nodes())
def test_the_order_of_zones_decides_nothing(one: Pod, where: Node) -> None:
    backwards = replace(where, zones=list(where.zones or ())[::-1])
    for corrects in (False, True):
        assert numa_filter(one, where, corrected=corrects) == numa_filter(one, backwards, corrected=corrects)
