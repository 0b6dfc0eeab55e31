"""A pod is charged to every zone until the node's own record names it."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.reservations import UntilSeen, View
from testbed.numa_nodes import GPU, init
from testbed.numa_topologies import cpus, seen, topology


def cache() -> UntilSeen:
    return UntilSeen({"n1": topology(8000, 8000)})


def test_the_third_pod_is_placed_on_the_record_that_shows_the_first_two() -> None:
    """No filter has to fail, and no timer to pass."""
    one = cache()
    one.reserve("n1", seen("first"))
    one.reserve("n1", seen("second", {"cpu": 2000}))
    assert cpus(one) == [0, 0]
    one.topology("n1", topology(2000, 8000, uids=("uid-first",)))
    assert cpus(one) == [0, 6000]
    one.topology("n1", topology(2000, 6000, uids=("uid-first", "uid-second")))
    assert cpus(one) == [2000, 6000]
    assert (one.generation, list(one.dirty), list(one.config_changed)) == (0, [], [])


def test_a_pod_that_does_not_run_yet_keeps_its_room() -> None:
    one = cache()
    one.reserve("n1", seen("waiting"))
    one.pod_seen(seen("waiting", phase="Pending"))
    one.filter_failed("n1")
    one.topology("n1", topology(8000, 8000, uids=("uid-other",)))
    one.resync()
    one.post_bind("n1", seen("waiting"))

    assert cpus(one) == [2000, 2000]


def test_a_node_that_is_new_is_used_at_once_and_one_without_pods_is_not_stuck() -> None:
    one = UntilSeen({})
    assert one.view("n2") == View(fresh=True, zones=None)
    one.reserve("n2", seen("a"))
    one.topology("n2", topology(8000))
    assert cpus(one, "n2") == [2000]
    one.pod_gone(seen("a"))
    one.topology("n2", topology(4000))
    assert cpus(one, "n2") == [4000]
    one.topology_deleted("n2")
    assert one.view("n2") == View(fresh=True, zones=None)


def test_a_pod_that_the_record_names_already_is_not_charged_twice() -> None:
    one = cache()
    one.topology("n1", topology(2000, 8000, uids=("uid-a",)))
    one.reserve("n1", seen("a"))

    assert cpus(one) == [2000, 8000]


def test_a_pod_that_is_done_gone_or_elsewhere_holds_nothing() -> None:
    for after in (
        lambda one: one.unreserve("n1", seen("a")),
        lambda one: one.pod_gone(seen("a")),
        lambda one: one.pod_seen(seen("a", phase="Succeeded")),
        lambda one: one.pod_seen(seen("a", phase="Failed")),
        lambda one: one.pod_seen(seen("a", node="n2")),
    ):
        one = cache()
        one.reserve("n1", seen("a"))
        one.reserve("n1", seen("b", {"cpu": 1000}))
        after(one)
        assert cpus(one) == [7000, 7000]


def test_a_pod_that_is_seen_unbound_or_running_there_keeps_its_room() -> None:
    one = cache()
    one.reserve("n1", seen("a"))
    one.pod_seen(seen("a", node="", phase="Pending"))
    one.pod_seen(seen("a", node="n1"))
    one.unreserve("n2", seen("a"))

    assert cpus(one) == [2000, 2000]


def test_another_nodes_record_ends_no_reservation() -> None:
    one = cache()
    one.reserve("n1", seen("a"))
    one.topology("n2", topology(8000, uids=("uid-a",)))

    assert cpus(one) == [2000, 2000]


def test_only_what_the_kubelet_pins_is_charged() -> None:
    one = cache()
    one.reserve("n1", seen("burstable", {"cpu": 4000, "memory": 4, GPU: 1}, qos="Burstable"))
    assert one.view("n1").zones == {name: {"cpu": 8000, "memory": 8} for name in ("node-0", "node-1")}
    one.reserve("n1", seen("sidecar", {"cpu": 1000}, inits=[init({"cpu": 2000}, sidecar=True)]))
    assert cpus(one) == [5000, 5000]
    one.reserve("n1", seen("parts", {"cpu": 500}))
    one.reserve("n1", seen("level", {"cpu": 500}, pod_level={"cpu": 1000}))
    assert cpus(one) == [4000, 4000]


@given(st.lists(st.tuples(st.sampled_from(["reserve", "record", "gone"]), st.sampled_from("abcd"))))
def test_each_pod_counts_once_whatever_comes_first(events: list[tuple[str, str]]) -> None:
    """The record counts the pods that it names; all others that are reserved are charged beside it."""
    one, reserved, recorded = UntilSeen({"n1": topology(8000)}), set(), set()
    for event, name in events:
        pod = seen(name, {"cpu": 1000})
        if event == "reserve":
            one.reserve("n1", pod)
            reserved.add(name)
        elif event == "gone":
            one.pod_gone(pod)
            reserved.discard(name)
        else:
            recorded.add(name)
            uids = tuple(f"uid-{each}" for each in recorded)
            one.topology("n1", topology(8000 - 1000 * len(recorded), uids=uids))
        reserved -= recorded

    assert cpus(one) == [8000 - 1000 * len(reserved | recorded)]
