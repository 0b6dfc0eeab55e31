"""What the kubelet's topology manager answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.policy_admit import Admission, covered, distance, policy_admit
from slacktide.streams.decisions.numa.topology import Kubelet, Policy, Zone
from testbed.numa_nodes import BATCH_CPU, FEW, GPU, KNOWN, POLICIES, REQUESTS, zone, zone_lists

PAIR = [zone(0, 8000, memory=8), zone(1, 8000, memory=8)]


def answer(
    request: dict[str, int],
    zones: list[Zone] = PAIR,
    policy: Policy = "restricted",
    *,
    guaranteed: bool = True,
    corrected: bool = False,
    **kubelet: bool,
) -> Admission:
    settings = Kubelet(policy=policy, **(KNOWN | kubelet))
    return policy_admit(request, zones, settings, guaranteed=guaranteed, corrected=corrected)


def test_cpu_on_two_zones_and_memory_on_one_agree_on_nothing() -> None:
    request = {"cpu": 12_000, "memory": 1}

    assert answer(request)[:3] == (False, False, ())
    assert answer(request, policy="best-effort")[:3] == (True, False, ())
    assert answer(request, policy="single-numa-node")[:3] == (False, False, ())
    assert answer(request, policy="none")[:3] == (True, True, (0, 1))
    assert answer(request, memory_static=False)[:3] == (True, True, (0, 1))


def test_two_zones_are_refused_where_an_empty_node_would_need_one() -> None:
    zones = [one._replace(available={"cpu": 3000}, allocatable={"cpu": 8000}) for one in PAIR]

    assert not answer({"cpu": 4000}, zones).admit
    assert answer({"cpu": 12_000}, zones).preferred is False
    assert answer({"cpu": 3000}, zones).zones == (0,)


def test_single_numa_node_never_takes_two_zones() -> None:
    request = {"cpu": 12_000}

    assert answer(request).zones == (0, 1)
    assert answer(request, policy="single-numa-node").admit is False


@pytest.mark.parametrize(
    ("request_", "changed"),
    [
        ({"cpu": 1500}, {}),
        ({"cpu": 0, "memory": 0, GPU: 0}, {}),
        ({"cpu": 90_000}, {"guaranteed": False}),
        ({"cpu": 90_000}, {"cpu_static": False}),
        ({"memory": 90}, {"memory_static": False}),
        ({GPU: 3}, {}),
        ({BATCH_CPU: 90_000, "ephemeral-storage": 9}, {}),
    ],
)
def test_what_no_manager_has_a_say_in_is_admitted_to_all_zones(request_: dict[str, int], changed: dict) -> None:
    for policy in ("restricted", "single-numa-node", "best-effort"):
        assert answer(request_, policy=policy, **changed) == Admission(True, True, (0, 1), [])


def test_a_manager_whose_policy_is_unknown_counts_as_static() -> None:
    known = policy_admit({"cpu": 9000}, PAIR, Kubelet(policy="single-numa-node"), guaranteed=True)

    assert known.groups == [{"cpu": 9000}]
    assert not known.admit
    assert not policy_admit({"memory": 9}, PAIR, Kubelet(policy="single-numa-node"), guaranteed=True).admit


def test_a_device_that_a_zone_lists_has_a_say_for_every_class() -> None:
    zones = [zone(0, 8000), zone(1, 8000, gpu=1)]

    assert answer({GPU: 1}, zones, guaranteed=False).zones == (1,)
    assert answer({GPU: 2}, zones, guaranteed=False).admit is False
    assert answer({GPU: 1, "cpu": 9000}, zones, guaranteed=True).groups == [{"cpu": 9000}, {GPU: 1}]


def test_memory_and_hugepages_are_one_group() -> None:
    pages = "hugepages-2Mi"
    zones = [Zone(0, {"memory": 8, pages: 0}), Zone(1, {"memory": 1, pages: 4})]

    assert answer({"memory": 4, pages: 4}, zones).zones == (0, 1)
    assert answer({"memory": 1, pages: 4}, zones).zones == (1,)


def test_memory_that_all_zones_together_lack_is_refused_only_when_it_is_allocated() -> None:
    known = Kubelet(policy="restricted", **KNOWN)

    assert policy_admit({"memory": 17}, PAIR, known, guaranteed=True) == Admission(True, True, (0, 1), [])
    assert answer({"memory": 17}, corrected=True).admit is False
    assert answer({"memory": 16}).zones == (0, 1)


def test_batch_cpu_that_zones_list_has_a_say_when_corrected() -> None:
    zones = [zone(0, batch=1000), zone(1, batch=4000)]

    assert answer({BATCH_CPU: 2000}, zones, guaranteed=False).zones == (0, 1)
    assert answer({BATCH_CPU: 2000}, zones, guaranteed=False, corrected=True).zones == (1,)


def test_of_sets_that_all_wish_the_lowest_ids_are_taken_or_the_nearest() -> None:
    far = {0: {0: 10, 1: 30, 2: 20}, 1: {0: 30, 1: 10, 2: 15}, 2: {0: 20, 1: 15, 2: 10}}
    zones = [zone(number, 4000, costs=far[number]) for number in (2, 1, 0)]

    assert answer({"cpu": 8000}, zones).zones == (0, 1)
    assert answer({"cpu": 8000}, zones, prefer_closest=True).zones == (1, 2)
    assert answer({"cpu": 4000}, zones, policy="single-numa-node", prefer_closest=True).zones == (0,)


def test_single_numa_node_takes_the_lowest_id_even_where_another_is_nearer_to_itself() -> None:
    zones = [zone(0, 4000, costs={0: 12}), zone(1, 4000, costs={1: 10})]

    assert answer({"cpu": 4000}, zones, policy="single-numa-node", prefer_closest=True).zones == (0,)
    assert answer({"cpu": 4000}, zones, prefer_closest=True).zones == (1,)


def test_the_lowest_bits_win_not_the_lowest_first_id() -> None:
    """Zones 0 and 3 have room, and so have 1 and 2."""
    capacity = {"cpu": 3000, "memory": 3}
    free = [(1000, 3), (2000, 2), (2000, 2), (3000, 1)]
    zones = [Zone(at, {"cpu": cpu, "memory": mem}, allocatable=capacity) for at, (cpu, mem) in enumerate(free)]

    assert answer({"cpu": 4000, "memory": 4}, zones).zones == (1, 2)


def test_no_zones_wish_for_nothing() -> None:
    assert answer({"cpu": 1000}, []).admit is False
    assert answer({}, []) == Admission(True, True, (), [])


def test_an_unknown_distance_is_the_largest() -> None:
    assert distance([zone(0, costs={0: 10}), zone(1, costs={0: 21})]) == 10 + 255 + 21 + 255


@given(REQUESTS, st.lists(REQUESTS, max_size=4))
def test_zones_cover_what_they_add_up_to(request: dict[str, int], zones: list[dict[str, int]]) -> None:
    sums = {name: sum(one.get(name, 0) for one in zones) for name in request}

    assert covered(request, zones) == all(sums[name] >= request[name] for name in request)


@given(request=REQUESTS, zones=zone_lists(), policy=POLICIES, closest=st.booleans(), corrected=st.booleans())
def test_what_is_admitted_follows_the_policy(
    request: dict[str, int], zones: list[Zone], policy: Policy, *, closest: bool, corrected: bool
) -> None:
    one = answer(request, zones, policy, prefer_closest=closest, corrected=corrected)

    assert one.admit or policy in {"restricted", "single-numa-node"}
    assert one.admit or not one.preferred
    assert one.preferred or not one.zones
    if policy in {"restricted", "single-numa-node"}:
        assert one.admit == one.preferred
    if policy == "single-numa-node" and one.preferred and one.groups:
        assert len(one.zones) == 1


@given(REQUESTS, zone_lists())
def test_preferred_zones_hold_the_request_and_no_smaller_set_ever_could(
    request: dict[str, int], zones: list[Zone]
) -> None:
    one = answer(request, zones, corrected=True)
    if one.preferred and one.groups:
        chosen = [zone for zone in zones if zone.id in one.zones]
        for group in one.groups:
            assert covered(group, [zone.available for zone in chosen])
            assert not any(covered(group, [zone.capacity for zone in chosen if zone is not left]) for left in chosen)


@given(REQUESTS, zone_lists(), POLICIES)
def test_zones_in_another_order_get_the_same_answer(request: dict[str, int], zones: list[Zone], policy: Policy) -> None:
    assert answer(request, zones, policy) == answer(request, zones[::-1], policy)


@given(REQUESTS, zone_lists())
def test_what_one_zone_may_have_alone_restricted_gives_too(request: dict[str, int], zones: list[Zone]) -> None:
    alone = answer(request, zones, "single-numa-node")
    if alone.preferred:
        assert answer(request, zones, "restricted").zones == alone.zones


@given(st.lists(FEW, min_size=1, max_size=3), FEW)
def test_an_empty_node_admits_whatever_its_zones_hold_together(free: list[int], asked: int) -> None:
    zones = [Zone(at, {"memory": amount}) for at, amount in enumerate(free)]

    assert answer({"memory": asked}, zones, corrected=True).admit == (asked <= sum(free) or not asked)
