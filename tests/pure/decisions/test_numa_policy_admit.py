"""What the kubelet's topology manager answers."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.numa.filter import Admission, covered, distance, policy_admit
from slacktide.streams.decisions.numa.topology import Kubelet, Policy, Zone
from testbed.numa_nodes import FEW, KNOWN, POLICIES, REQUESTS, zone, zone_lists

PAIR = [zone(0, 8000, memory=8), zone(1, 8000, memory=8)]


def answer(
    request: dict[str, int],
    zones: list[Zone] = PAIR,
    policy: Policy = "restricted",
    *,
    corrected: bool = False,
    **kubelet: bool,
) -> Admission:
    settings = Kubelet(policy=policy, **(KNOWN | kubelet))
    return policy_admit(request, zones, settings, guaranteed=True, corrected=corrected)


def test_a_manager_whose_policy_is_unknown_counts_as_static() -> None:
    known = policy_admit({"cpu": 9000}, PAIR, Kubelet(policy="single-numa-node"), guaranteed=True)

    assert known.groups == [{"cpu": 9000}]
    assert not known.admit
    assert not policy_admit({"memory": 9}, PAIR, Kubelet(policy="single-numa-node"), guaranteed=True).admit


def test_single_numa_node_takes_the_lowest_id_even_where_another_is_nearer_to_itself() -> None:
    zones = [zone(0, 4000, costs={0: 12}), zone(1, 4000, costs={1: 10})]

    assert answer({"cpu": 4000}, zones, policy="single-numa-node", prefer_closest=True).zones == (0,)
    assert answer({"cpu": 4000}, zones, prefer_closest=True).zones == (1,)


def test_without_being_asked_it_answers_as_the_reference() -> None:
    known = Kubelet(policy="restricted", **KNOWN)
    assert policy_admit({"memory": 17}, PAIR, known, guaranteed=True) == Admission(True, True, (0, 1), [])


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
