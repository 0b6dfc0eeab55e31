"""Whether a node's zones can hold a pod, by the reference and as Slacktide decides."""

from dataclasses import replace

from hypothesis import given

from slacktide.streams.decisions.numa.filter import Node, numa_filter
from slacktide.streams.decisions.numa.topology import Pod, steps
from testbed.numa_nodes import node, nodes, pod, pods, zone


def test_without_being_asked_it_decides_as_the_reference() -> None:
    assert numa_filter(pod({}, {"cpu": 1000}, pod_level={"cpu": 9000}), node(zone(0, 8000))).fits


def test_memory_fits_where_no_manager_gives_it_by_zone() -> None:
    where = node(zone(0, 8000), memory_static=False)
    asks = pod({}, {"cpu": 1000, "memory": 1 << 30})

    assert where.kubelet.cpu_static is None
    assert numa_filter(asks, where, corrected=True).fits


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
