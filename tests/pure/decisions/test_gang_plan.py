"""Places for all pods of gangs, or none: on the extender's own view of nodes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.cluster.scheduler.gang_plans import Nodes
from slacktide.streams.decisions.gang import plan
from slacktide.streams.decisions.gang.plan import Candidate, Missed, planned
from slacktide.streams.decisions.load.pod_placement import asking
from testbed.gang_world import GangWorld
from testbed.kube_scheduler import GIB, manifest
from testbed.scheduler_pods import parsed


class Planning:
    """Nodes ``n0``, ``n1`` and so on, which take batch pods; their plan."""

    def __init__(self, *batch: int) -> None:
        self.world = GangWorld(nodes=len(batch))
        for node, offered in zip(self.world.nodes, batch, strict=True):
            self.world.offers(node, offered)
        replica = self.world.replicas["a"]
        self.view, self.room = replica.view, Nodes(replica.view, replica.now)

    def pod(
        self,
        name: str,
        *,
        gang: str = "g",
        cpu: int = 1_000,
        offer: Sequence[str] = (),
        apart: bool = False,
        **given: str,
    ) -> Candidate:
        pod = parsed(manifest(name, cpu=str(cpu), **given))
        nodes = offer or self.world.nodes
        return Candidate(pod=pod.asked, gang=gang, shape=(cpu, tuple(nodes), apart), offer=nodes, apart=apart)

    def pods(self, count: int, **given: object) -> list[Candidate]:
        return [self.pod(f"{given.get('gang', 'g')}-{number}", **given) for number in range(count)]  # type: ignore[arg-type]

    def plan(self, candidates: list[Candidate], **needs: int) -> dict[str, str] | Missed:
        return planned(candidates, needs, self.room, self.view.args)

    def free(self) -> list[int]:
        """How many pods of 100m each node takes beside those that are held."""
        counts = []
        for node in self.world.nodes:
            probe, held = self.pod("probe", cpu=100).pod, 0
            while not hasattr(self.room.judged(asking(probe, self.view.args), node), "reason"):
                one = self.pod(f"probe-{node}-{held}", cpu=100, memory="1Mi").pod
                self.room.hold(one, node)
                held += 1
            for number in range(held):
                self.room.release(f"uid-probe-{node}-{number}")
            counts.append(held)
        return counts


def test_each_pod_has_a_node_and_counts_there() -> None:
    at = Planning(2_000, 2_000)
    found = at.plan(at.pods(3), g=3)
    assert isinstance(found, dict)
    assert list(found) == ["uid-g-0", "uid-g-1", "uid-g-2"]
    assert sorted(found.values()) in (["n0", "n0", "n1"], ["n0", "n1", "n1"])
    assert {uid: at.view.assumed(uid) for uid in found} == found
    assert sum(at.free()) == 10


def test_pods_go_to_the_best_node_that_is_left() -> None:
    at = Planning(4_000, 4_000)
    found = at.plan(at.pods(4), g=4)
    assert isinstance(found, dict)
    assert sorted(found.values()) == ["n0", "n0", "n1", "n1"], "each pod makes its node a worse one"


def test_with_a_place_too_few_nothing_is_held_and_the_first_pod_without_one_says_why() -> None:
    at = Planning(2_000, 1_000)
    before = at.free()
    found = at.plan(at.pods(5), g=4)
    assert isinstance(found, Missed)
    assert found.placed == {"g": 3}
    assert found.first is not None
    assert found.first.uid == "uid-g-3"
    assert {node: one.reason for node, one in found.refused.items()} == {
        "n0": "batch_short:cpu",
        "n1": "batch_short:cpu",
    }
    assert at.free() == before
    assert not any(at.view.assumed(f"uid-g-{number}") for number in range(5))


def test_pods_beyond_the_need_get_places_if_there_are_any() -> None:
    at = Planning(3_000)
    found = at.plan(at.pods(5), g=2)
    assert isinstance(found, dict)
    assert len(found) == 3


def test_each_gang_of_a_group_needs_its_own() -> None:
    at = Planning(3_000)
    both = [*at.pods(2, gang="g"), *at.pods(2, gang="h")]
    missed = at.plan(both, g=2, h=2)
    assert isinstance(missed, Missed)
    assert missed.placed == {"g": 2, "h": 1}
    found = at.plan(both, g=2, h=1)
    assert isinstance(found, dict)
    assert len(found) == 3


def test_a_smaller_pod_gets_the_room_that_is_left_beside_a_larger_one() -> None:
    at = Planning(3_000)
    found = at.plan([at.pod("a", cpu=2_000), at.pod("b", cpu=2_000), at.pod("c", cpu=1_000)], g=2)
    assert isinstance(found, dict)
    assert sorted(found) == ["uid-a", "uid-c"]


def test_only_offered_nodes_count() -> None:
    at = Planning(4_000, 1_000)
    found = at.plan(at.pods(2, offer=["n1"]), g=2)
    assert isinstance(found, Missed)
    assert list(found.refused) == ["n1"]
    assert at.plan([at.pod("a", offer=["n1"])], g=1) == {"uid-a": "n1"}


def test_pods_that_keep_apart_share_no_node() -> None:
    at = Planning(4_000, 4_000)
    missed = at.plan(at.pods(3, apart=True), g=3)
    assert isinstance(missed, Missed)
    assert {node: one.reason for node, one in missed.refused.items()} == {"n0": "host_taken", "n1": "host_taken"}
    found = at.plan(at.pods(2, apart=True), g=2)
    assert isinstance(found, dict)
    assert sorted(found.values()) == ["n0", "n1"]


@pytest.mark.parametrize(
    ("cpu", "memory_gib", "places"), [(2_000, 16, 2), (1_999, 16, 1), (32_000, 2, 2), (32_000, 1, 1)]
)
def test_kubernetes_own_count_of_cpu_and_memory_holds_too(cpu: int, memory_gib: int, places: int) -> None:
    at = Planning(0)
    at.world.has("n0", cpu_milli=cpu, mem_bytes=memory_gib * GIB)
    asks = {"requests": {"cpu": "1", "memory": "1Gi"}}
    pods = []
    for number in range(3):
        pod = parsed(manifest(f"g-{number}", containers=[{"name": "main", "resources": asks}], priority=9_500))  # type: ignore[arg-type]
        pods.append(Candidate(pod=pod.asked, gang="g", shape=1, offer=["n0"], apart=False))
    found = at.plan(pods, g=1)
    assert isinstance(found, dict)
    assert len(found) == places
    for uid in found:
        at.room.release(uid)
    missed = at.plan(pods, g=3)
    assert isinstance(missed, Missed)
    [refusal] = missed.refused.values()
    assert refusal.reason == ("unrequested_short:cpu" if cpu < 4_000 else "unrequested_short:memory")
    assert refusal.short is not None
    assert refusal.short.wanted == (1_000 if cpu < 4_000 else GIB)
    assert refusal.short.left == (cpu - 1_000 * places if cpu < 4_000 else (memory_gib - places) * GIB)


def test_a_pod_that_requests_no_cpu_and_memory_of_kubernetes_needs_none_of_it() -> None:
    at = Planning(4_000)
    at.world.has("n0", cpu_milli=1_000, mem_bytes=GIB)
    resources = {"requests": {"cpu": "2", "memory": "2Gi"}}
    other = parsed(manifest("other", containers=[{"name": "main", "resources": resources}], priority=9_500))  # type: ignore[arg-type]
    at.room.hold(other.asked, "n0")
    free = at.room.unrequested("n0")
    assert free is not None
    assert max(free) < 0, "more is requested than there is"
    assert at.plan(at.pods(1), g=1) == {"uid-g-0": "n0"}


def test_without_the_nodes_size_its_requests_are_not_compared() -> None:
    at = Planning(1_000)
    assert at.plan(at.pods(1), g=1) == {"uid-g-0": "n0"}


def test_too_many_nodes_for_all_shapes_are_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SURVEYED_MAX", 4)
    at = Planning(4_000, 4_000)
    two, three = ([at.pod(f"p{cpu}", cpu=cpu) for cpu in range(1_000, 1_000 + shapes)] for shapes in (2, 3))
    assert isinstance(at.plan(two, g=2), dict)
    for one in two:
        at.room.release(one.uid)
    before = at.free()
    three[2] = at.pod("one", cpu=500, offer=["n0"])
    missed = at.plan(three, g=2)
    assert isinstance(missed, Missed)
    assert (missed.first, missed.refused, missed.placed) == (None, {}, {"g": 2})
    assert at.free() == before


def test_too_many_judgements_are_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "JUDGED_MAX", 2)
    at = Planning(4_000)
    assert isinstance(at.plan(at.pods(3), g=3), dict)
    for number in range(3):
        at.room.release(f"uid-g-{number}")
    missed = at.plan(at.pods(4), g=1)
    assert isinstance(missed, Missed)
    assert (missed.first, missed.placed) == (None, {"g": 3})
    assert not at.view.assumed("uid-g-0")


def test_the_limits_leave_room_for_a_thousand_pods_on_five_thousand_nodes() -> None:
    assert (plan.SURVEYED_MAX, plan.JUDGED_MAX) == (20_000, 5_000)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=5), st.integers(1, 8), st.integers(1, 4))
def test_pods_of_one_shape_have_a_plan_exactly_when_they_fit(free: list[int], pods: int, cpu: int) -> None:
    at = Planning(*(one * 500 for one in free))
    fits = sum(one // cpu for one in free)
    found = at.plan(at.pods(pods, cpu=cpu * 500, memory="1Mi"), g=pods)
    assert isinstance(found, dict) == (fits >= pods)
    if isinstance(found, Missed):
        assert found.placed.get("g", 0) == fits
