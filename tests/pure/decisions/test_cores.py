"""Laws of exclusive CPUs; that the results are the reference's is in the vectors."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Processor
from slacktide.streams.decisions.cores.allocate import Free, Ledger, allocate, held_cpus
from slacktide.streams.decisions.cores.pools import CoresPod, Kept, packed, pools
from slacktide.streams.decisions.cores.take import (
    CORE_LEVEL,
    FULL,
    MOST,
    NO_CPUS,
    SPREAD,
    ZONE_LEVEL,
    TakeError,
    Topology,
    Wish,
    read_cpus,
    written,
)
from testbed.vectors import each_row

BINDS, EXCLUSIVE = ("", FULL, SPREAD), ("", CORE_LEVEL, ZONE_LEVEL)


def node(sockets: int = 2, zones: int = 1, cores: int = 4, threads: int = 2, *, corrected: bool = False) -> Topology:
    """Threads of a core are as far apart as the kernel numbers them."""
    places = [(socket, zone) for socket in range(sockets) for zone in range(zones)]
    whole = [(socket, zone, core) for socket, zone in places for core in range(cores)]
    return Topology(
        [
            Processor(
                cpu=thread * len(whole) + number,
                core=core + zone * cores,
                socket=socket,
                numa_node=socket * zones + zone,
            )
            for thread in range(threads)
            for number, (socket, zone, core) in enumerate(whole)
        ],
        corrected=corrected,
    )


SIZES = (st.integers(1, 2), st.integers(1, 2), st.integers(1, 4), st.integers(1, 2))
NODES = st.builds(node, *SIZES)
WISHES = st.builds(
    Wish,
    bind=st.sampled_from(BINDS),
    required=st.booleans(),
    exclusive=st.sampled_from(EXCLUSIVE),
    strategy=st.sampled_from(["", MOST]),
)


@given(NODES, st.lists(st.tuples(WISHES, st.integers(0, 6)), max_size=8))
def test_no_cpu_is_given_to_two_pods_and_each_pod_gets_what_it_asks_for(
    topology: Topology, asked: list[tuple[Wish, int]]
) -> None:
    """The reference gives a whole core too many now and then, never a CPU too few."""
    ledger = Ledger()
    for number, (wish, wanted) in enumerate(asked):
        try:
            cpus = allocate(Free(topology=topology, taken=ledger.taken), wish, wanted)
        except TakeError:
            continue
        assert cpus <= topology.cpus - NO_CPUS.union(*ledger.held.values())
        assert len(cpus) >= wanted
        ledger.put(f"{number}", cpus, wish.exclusive)
        if wish.required and wish.bind == SPREAD:
            assert topology.core_count(cpus) == len(cpus)
        if wish.required and wish.bind == FULL and cpus:
            assert topology.core_count(cpus) * topology.per_core == len(cpus)


@given(
    st.builds(node, *SIZES, corrected=st.just(True)),
    st.sets(st.integers(0, 31)),
    st.lists(st.tuples(WISHES, st.booleans(), st.integers(1, 6)), max_size=8),
    st.integers(0, 2),
)
def test_corrected_a_pod_gets_exactly_what_it_asks_for_and_an_lse_pod_shares_no_core(
    whole: Topology, offline: set[int], asked: list[tuple[Wish, bool, int]], shared_min: int
) -> None:
    """Also on a node some of whose threads are offline."""
    cpus = [Processor(cpu=cpu, core=core, socket=socket, numa_node=whole.zones[cpu])
            for cpu, (socket, core) in whole.cores.items() if cpu not in offline]  # fmt: skip
    topology, ledger = Topology(cpus, corrected=True), Ledger(corrected=True)
    for number, (wish, alone, wanted) in enumerate(asked):
        lone = replace(wish, alone=alone)
        try:
            found = allocate(Free(topology=topology, taken=ledger.taken, shared_min=shared_min), lone, wanted)
        except TakeError:
            continue
        held = held_cpus(topology, found, alone=alone)
        assert len(found) == wanted
        assert found <= held <= topology.cpus - NO_CPUS.union(*ledger.held.values())
        ledger.put(f"{number}", held, wish.exclusive)
        assert len(topology.cpus) - len(ledger.taken) >= shared_min
        if wish.required and wish.bind == FULL:
            assert topology.with_siblings(found) == found


@given(NODES, st.integers(1, 8))
def test_who_leaves_gives_all_back(topology: Topology, wanted: int) -> None:
    ledger = Ledger()
    free = Free(topology=topology, taken=ledger.taken)
    try:
        cpus = allocate(free, Wish(), wanted)
    except TakeError:
        return
    ledger.pod_seen("a", bound=True, phase="Running", cpuset=written(cpus), exclusive="")
    assert ledger.held == {"a": cpus}
    ledger.pod_gone("a")

    assert (ledger.held, ledger.taken) == ({}, {})
    assert allocate(replace(free, taken=ledger.taken), Wish(), wanted) == cpus


@each_row("exclusive", "places")
def test_a_pod_keeps_off_the_zones_of_pods_with_its_policy(exclusive: str, places: int) -> None:
    topology, ledger = node(), Ledger()
    for name in ("a", "b"):
        wish = Wish(bind=FULL, exclusive=exclusive, strategy=MOST)
        ledger.put(name, allocate(Free(topology=topology, taken=ledger.taken), wish, 2), exclusive)

    assert len({topology.zone(cpu) for cpus in ledger.held.values() for cpu in cpus}) == places


@given(NODES, st.sets(st.integers(0, 31)), st.sets(st.integers(0, 31)))
def test_nobody_shares_the_cpus_of_lse_pods_and_only_best_effort_pods_those_of_lsr_pods(
    topology: Topology, lse: set[int], lsr: set[int]
) -> None:
    pods = [CoresPod(uid="e", qos_label="LSE", cpus=lse), CoresPod(uid="r", qos_label="LSR", cpus=lsr)]
    found = pools(topology, pods, None, {}, Kept())
    ls, be = (NO_CPUS.union(*(pool.cpus for pool in its)) for its in (found.ls, found.be))

    assert ls == topology.cpus - lse - lsr
    assert be == topology.cpus - lse


@given(NODES, st.integers(-1, 40))
def test_the_kubelet_packs_as_many_as_it_reserves_or_none(topology: Topology, wanted: int) -> None:
    cpus = packed(topology, wanted)

    assert len(cpus) == (wanted if 0 < wanted <= len(topology.cpus) else 0)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()), ("0-3,6", {0, 1, 2, 3, 6}), ("5-3", set()), ("7", {7}), ("0-4096", set(range(4_097))),
        ("123456789", {123_456_789}), ("1234567890", None),
        ("1,,2", None), ("1-", None), ("1-2-3", None), ("a", None), ("0-4097", None), (" 1", None), ("٣", None),
    ],
)  # fmt: skip
def test_a_list_is_read_as_the_reference_reads_it(text: str, cpus: set[int] | None) -> None:
    assert read_cpus(text) == cpus
