"""Pods charged to every zone until the pods of a node are those of its fingerprint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.overreserve import FINGERPRINT, METHOD, ONLY_EXCLUSIVE, OverReserve
from slacktide.streams.decisions.numa.reservations import SeenPod, Topology, View
from testbed.numa_nodes import GPU, init
from testbed.numa_topologies import POLICY, cpus, of_pods, seen, topology


def cache(*at_start: int, **settings: object) -> OverReserve:
    return OverReserve({"n1": topology(*(at_start or (8000, 8000)))}, **({"own_schedulers": ["own"]} | settings))


def synced(one: OverReserve, reported: Topology, *pods: SeenPod) -> bool:
    """Whether a resync takes what the node reports, once pods run there and a filter has failed."""
    for pod in pods:
        one.pod_seen(pod)
    one.filter_failed("n1")
    one.topology("n1", reported)
    one.resync()
    return one.generation == 1


def test_a_reservation_is_charged_to_every_zone_until_it_is_taken_back() -> None:
    one = cache(8000, 2000)
    one.reserve("n1", seen("a"))
    one.post_bind("n1", seen("a"))

    assert cpus(one) == [2000, 0]
    one.reserve("n1", seen("a", {"cpu": 1000}))
    assert cpus(one) == [7000, 1000]
    one.unreserve("n1", seen("b"))
    one.unreserve("n2", seen("a"))
    assert cpus(one) == [7000, 1000]
    one.unreserve("n1", seen("a"))
    assert cpus(one) == [8000, 2000]


def test_the_reference_counts_no_sidecar() -> None:
    one = cache(8000)
    one.reserve("n1", seen("a", {"cpu": 2000}, inits=[init({"cpu": 1000}, sidecar=True)]))

    assert cpus(one) == [6000]


def test_what_a_node_reports_changes_nothing_until_its_pods_agree() -> None:
    one, pod = cache(), seen("a")
    one.reserve("n1", pod)
    one.topology("n1", topology(2000, 8000, **{FINGERPRINT: of_pods(pod)}))

    assert cpus(one) == [2000, 2000]
    one.resync()
    assert cpus(one) == [2000, 2000]
    one.filter_failed("n1")
    one.resync()
    assert (cpus(one), sorted(one.dirty), one.generation) == ([2000, 2000], ["n1"], 0)
    one.pod_seen(pod)
    one.resync()
    assert (cpus(one), sorted(one.dirty), one.generation) == ([2000, 8000], [], 1)
    one.resync()
    assert one.generation == 1


def test_the_reference_drops_a_pod_that_is_reserved_but_does_not_run_yet() -> None:
    one = cache(8000)
    one.reserve("n1", seen("waiting"))

    assert synced(one, topology(8000, **{FINGERPRINT: of_pods(seen("a"))}), seen("a"), seen("waiting", phase="Pending"))
    assert cpus(one) == [8000]


@pytest.mark.parametrize(
    ("counted", "phase", "node", "counts"),
    [
        ("shared", "Running", "n1", True),
        ("shared", "Succeeded", "n1", False),
        ("shared", "Running", "n2", False),
        ("dedicated", "Running", "n1", True),
        ("dedicated", "Failed", "n1", True),
        ("dedicated", "Pending", "n1", False),
        ("dedicated", "Running", "", False),
    ],
)
def test_which_pods_count(counted: str, phase: str, node: str, counts: bool) -> None:  # noqa: FBT001
    other = seen("b", phase=phase, node=node)
    both = topology(1, **{FINGERPRINT: of_pods(seen("a"), other)})

    assert synced(cache(counted=counted), both, seen("a"), other) == counts


def test_the_reference_is_stuck_without_pods_without_a_fingerprint_and_without_an_object() -> None:
    assert not synced(cache(), topology(1, **{FINGERPRINT: of_pods()}))
    assert not synced(cache(), topology(1), seen("a"))
    assert not synced(cache(), topology(1, **{FINGERPRINT: "pfp0v001zz"}), seen("a"))
    one = cache()
    one.pod_seen(seen("a"))
    one.filter_failed("n1")
    one.topology_deleted("n1")
    one.resync()
    assert (one.generation, cpus(one)) == (0, [8000, 8000])


def test_an_annotation_holds_the_fingerprint_where_no_attribute_does() -> None:
    annotated = {"topology.node.k8s.io/fingerprint": of_pods(seen("a"))}

    assert synced(cache(), Topology(zones=[], annotations=annotated), seen("a"))
    assert not synced(cache(), Topology(zones=[], annotations=annotated, attributes=[(FINGERPRINT, "")]), seen("a"))


@pytest.mark.parametrize(
    ("method", "attribute", "exclusive_only"),
    [
        ("Autodetect", ONLY_EXCLUSIVE, True),
        ("Autodetect", "with-exclusive", False),
        ("Autodetect", None, False),
        ("All", ONLY_EXCLUSIVE, False),
        ("OnlyExclusiveResources", None, True),
    ],
)
def test_which_pods_a_fingerprint_is_of(method: str, attribute: str | None, exclusive_only: bool) -> None:  # noqa: FBT001
    pods = seen("whole"), seen("fraction", {"cpu": 500})
    attributes = {FINGERPRINT: of_pods(pods[0])} | ({} if attribute is None else {METHOD: attribute})

    assert synced(cache(resync_method=method), topology(1, **attributes), *pods) == exclusive_only
    assert synced(cache(resync_method=method), topology(1, **attributes | {FINGERPRINT: of_pods(*pods)}), *pods) != (
        exclusive_only
    )


def test_an_annotation_is_of_all_pods() -> None:
    annotated = {"topology.node.k8s.io/fingerprint": of_pods(seen("a", {"cpu": 500}))}
    one = cache(resync_method="OnlyExclusiveResources")

    assert synced(one, Topology(zones=[], annotations=annotated), seen("a", {"cpu": 500}))


def test_a_device_is_exclusive_where_the_cached_zones_list_it() -> None:
    pods = seen("cpu"), seen("gpu", {GPU: 1})

    assert synced(cache(resync_method="OnlyExclusiveResources"), topology(1, **{FINGERPRINT: of_pods(pods[0])}), *pods)


def test_a_kubelet_that_is_configured_anew_needs_no_fingerprint() -> None:
    one = cache()
    one.topology("n1", topology(1000, other="x"))
    assert sorted(one.config_changed) == []
    one.topology("n1", topology(1000, **{POLICY: "restricted"}))
    assert (sorted(one.config_changed), cpus(one)) == (["n1"], [8000, 8000])
    one.reserve("n1", seen("a"))
    one.resync()
    assert (sorted(one.config_changed), cpus(one), one.generation) == ([], [1000], 1)


def test_a_change_is_none_of_a_new_object_and_waits_for_one_that_is_gone() -> None:
    one = cache()
    one.topology_deleted("n1")
    one.topology("n1", topology(1000, **{POLICY: "restricted"}))
    assert sorted(one.config_changed) == []
    one.topology("n1", topology(1000, **{POLICY: "best-effort"}))
    one.topology_deleted("n1")
    one.resync()
    assert (sorted(one.config_changed), one.generation) == (["n1"], 0)


def test_the_reference_does_not_see_a_node_that_is_new() -> None:
    one = OverReserve({})
    one.topology("n1", topology(8000))
    one.topology("n1", topology(8000, **{POLICY: "restricted"}))
    one.reserve("n1", seen("a"))

    assert one.view("n1") == View(fresh=True, zones=None)
    assert sorted(one.config_changed) == []
    one.filter_failed("n1")
    assert sorted(one.dirty) == ["n1"]


def test_a_new_node_is_used_once_it_is_flushed_and_no_reservation_was_kept_for_it() -> None:
    one = OverReserve({})
    one.reserve("n1", seen("a"))

    assert synced(one, topology(8000, **{FINGERPRINT: of_pods(seen("a", scheduler="x"))}), seen("a", scheduler="x"))
    assert cpus(one) == [8000]


@pytest.mark.parametrize("event", ["pod_seen", "pod_gone"])
def test_a_pod_of_another_scheduler_makes_its_node_not_fresh(event: str) -> None:
    for pod, foreign in (
        (seen("a", scheduler="other"), True),
        (seen("a"), False),
        (seen("a", scheduler="other", node=""), False),
        (seen("a", scheduler="other", node="n2"), False),
    ):
        one = cache()
        getattr(one, event)(pod)
        assert one.view("n1").fresh != foreign
        assert (one.view("n1").zones is None) == foreign
        assert sorted(one.dirty) == (["n1"] if foreign else [])


def test_which_pods_of_others_are_looked_at() -> None:
    shared, exclusive = seen("a", {"cpu": 500}, scheduler="other"), seen("b", scheduler="other")
    for detect, pod, foreign in (
        ("All", shared, True),
        ("OnlyExclusiveResources", shared, False),
        ("OnlyExclusiveResources", exclusive, True),
        ("None", exclusive, False),
    ):
        one = cache(detect=detect)
        one.pod_seen(pod)
        assert one.view("n1").fresh != foreign


def test_a_foreign_pod_is_forgotten_once_the_fingerprint_has_it() -> None:
    one, pod = cache(), seen("a", scheduler="other")
    one.pod_seen(pod)
    one.topology("n1", topology(2000, **{FINGERPRINT: of_pods(pod)}))
    one.resync()

    assert (cpus(one), sorted(one.dirty)) == ([2000], [])


def test_a_pod_that_is_gone_does_not_count() -> None:
    one = cache()
    one.pod_seen(seen("b"))
    one.pod_gone(seen("b"))

    assert synced(one, topology(1, **{FINGERPRINT: of_pods(seen("a"))}), seen("a"))


def test_nodes_are_flushed_for_themselves() -> None:
    one = OverReserve({"n1": topology(8000), "n2": topology(4000)}, own_schedulers=["own"])
    for node in ("n1", "n2"):
        one.reserve(node, seen(f"on-{node}", {"cpu": 1000}, node=node))
        one.filter_failed(node)
        one.pod_seen(seen(f"on-{node}", node=node))
    one.topology("n1", topology(6000, **{FINGERPRINT: of_pods(seen("on-n1"))}))
    one.resync()

    assert (cpus(one, "n1"), cpus(one, "n2"), sorted(one.dirty)) == ([6000], [3000], ["n2"])


@given(st.lists(st.tuples(st.sampled_from(["reserve", "unreserve"]), st.sampled_from("abc"), st.integers(0, 9000))))
def test_what_is_left_is_what_is_not_reserved_and_never_negative(events: list[tuple[str, str, int]]) -> None:
    one, held = cache(8000, 3000), {}
    for event, name, cpu in events:
        getattr(one, event)("n1", seen(name, {"cpu": cpu}))
        held.pop(name, None)
        if event == "reserve":
            held[name] = cpu

    assert cpus(one) == [max(0, free - sum(held.values())) for free in (8000, 3000)]
