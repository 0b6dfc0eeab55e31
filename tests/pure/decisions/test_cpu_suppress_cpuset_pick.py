"""Which CPUs are picked first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Processor
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import pick_cpus
from testbed.cpu_cases import answered, machine, processors


def cpu(number: int, core: int, socket: int = 0, numa_node: int = 0) -> Processor:
    return Processor(cpu=number, core=core, socket=socket, numa_node=numa_node)


def picked(wanted: int, given_cpus: list[Processor]) -> list[int]:
    return list(pick_cpus(wanted, given_cpus).cpus)


# Two NUMA nodes of two cores each: 0 1 | 2 3 || 4 5 | 6 7
TWO_NODES = machine(numa_nodes=2, cores=2)


@pytest.mark.parametrize(
    ("wanted", "given_cpus", "cpus"),
    [
        pytest.param(6, TWO_NODES, [0, 1, 4, 5, 2, 3], id="a core of each node in turn"),
        pytest.param(7, TWO_NODES, [0, 1, 4, 5, 2, 3, 6], id="the single one of the node whose turn is next"),
        pytest.param(5, TWO_NODES, [0, 1, 4, 5, 2], id="after the last node the first is next"),
        pytest.param(1, TWO_NODES, [0], id="a single one splits a core"),
        pytest.param(3, machine(numa_nodes=4, cores=1), [0, 1, 2], id="of four nodes, too"),
        pytest.param(3, [cpu(0, 0), cpu(1, 0), cpu(2, 0)], [0, 1, 2], id="three threads: two, then one"),
        pytest.param(4, [cpu(n, 0) for n in range(4)], [0, 1, 2, 3], id="four threads are two pairs"),
        pytest.param(2, [cpu(0, 0), cpu(1, 1), cpu(2, 1)], [1, 2], id="a whole core before a half one"),
        pytest.param(2, [cpu(0, 1), cpu(1, 0), cpu(2, 1)], [0, 2], id="siblings are told by the core"),
        pytest.param(1, [cpu(0, 1), cpu(1, 0)], [1], id="single ones by core, then by number"),
    ],
)
def test_one_machine(wanted: int, given_cpus: list[Processor], cpus: list[int]) -> None:
    assert picked(wanted, given_cpus) == cpus


def test_a_large_node_goes_before_a_small_one() -> None:
    small, large = [cpu(0, 0), cpu(1, 0)], [cpu(4, 2, 0, 1), cpu(5, 2, 0, 1), cpu(6, 3, 0, 1)]

    assert picked(3, small + large) == [4, 5, 0]


def test_of_equal_nodes_the_one_with_the_lower_first_cpu_goes_first() -> None:
    """The first is the one of the lowest core, not the lowest number."""
    one, other = [cpu(5, 0), cpu(0, 1)], [cpu(4, 2, 0, 1), cpu(6, 3, 0, 1)]

    assert picked(2, one + other) == [4, 5]


def test_when_pairs_run_out_single_ones_begin_with_the_first_node() -> None:
    """0 1 | 2 || 4 | 5 | 6: one pair, then a round without any ends at the first node."""
    first, second = [cpu(0, 0), cpu(1, 0), cpu(2, 1)], [cpu(4, 2, 0, 1), cpu(5, 3, 0, 1), cpu(6, 4, 0, 1)]

    assert picked(4, first + second) == [0, 1, 2, 4]


def test_nodes_of_one_number_on_two_sockets_are_two() -> None:
    """The number made of both that the reference groups by is 6 for (socket 0, node 4) and (socket 1, node 1)."""
    assert picked(2, [cpu(0, 0, 0, 4), cpu(1, 0, 1, 1)]) == [0, 1]
    assert pick_cpus(2, [cpu(0, 0, 0, 4), cpu(1, 0, 1, 1)]).terms["in_pairs_cpus"] == 0


def test_too_few_cpus_give_none_and_say_so() -> None:
    result = pick_cpus(9, TWO_NODES)

    assert (result.cpus, result.bound) == ((), "short")
    assert result.terms == {"wanted_cpus": 9, "given_cpus": 8, "picked_cpus": 0}


def test_terms_tell_whole_cores_from_single_cpus() -> None:
    result = pick_cpus(5, TWO_NODES)

    assert result.bound == "picked"
    assert result.terms == {
        "wanted_cpus": 5,
        "given_cpus": 8,
        "in_pairs_cpus": 4,
        "single_cpus": 1,
        "picked_cpus": 5,
    }


@pytest.mark.parametrize("wanted", [0, -1, -2])
@pytest.mark.parametrize("given_cpus", [[], TWO_NODES], ids=["no CPUs", "eight CPUs"])
def test_who_wants_nothing_gets_nothing(wanted: int, given_cpus: list[Processor]) -> None:
    result = pick_cpus(wanted, given_cpus)

    assert (result.cpus, result.bound, result.terms["picked_cpus"]) == ((), "picked", 0)


wants = st.integers(0, 34)


@given(wants, processors())
def test_exactly_as_many_distinct_cpus_as_are_wanted_or_none(wanted: int, given_cpus: list[Processor]) -> None:
    cpus = picked(wanted, given_cpus)

    assert len(set(cpus)) == len(cpus) == (wanted if wanted <= len(given_cpus) else 0)
    assert set(cpus) <= {one.cpu for one in given_cpus}


@given(wants, processors(), st.randoms(use_true_random=False))
def test_the_order_in_which_cpus_are_given_does_not_matter(wanted: int, given_cpus: list[Processor], random) -> None:
    shuffled = random.sample(given_cpus, len(given_cpus))

    assert pick_cpus(wanted, shuffled) == pick_cpus(wanted, given_cpus)


@given(wants, st.integers(1, 2), st.integers(1, 2), st.integers(1, 4))
def test_at_most_one_core_is_split_on_a_machine_of_whole_cores(
    wanted: int, sockets: int, numa_nodes: int, cores: int
) -> None:
    whole = machine(sockets=sockets, numa_nodes=numa_nodes, cores=cores)
    cpus = set(picked(wanted, whole))

    assert len({one // 2 for one in cpus}) == (len(cpus) + 1) // 2


@given(wants, st.integers(1, 2), st.integers(1, 2), st.integers(1, 4))
def test_equal_nodes_give_equally_up_to_a_core(wanted: int, sockets: int, numa_nodes: int, cores: int) -> None:
    whole = machine(sockets=sockets, numa_nodes=numa_nodes, cores=cores)
    cpus = picked(wanted, whole)
    of_node = [sum(one.cpu in cpus for one in whole if one.numa_node == node) for node in range(sockets * numa_nodes)]

    assert max(of_node) - min(of_node) <= 2


@given(wants, processors())
def test_pairs_and_singles_come_as_when_walking_from_node_to_node(wanted: int, given_cpus: list[Processor]) -> None:
    """The rule as it is told: a pointer over the nodes, first for pairs, then for single CPUs."""
    if wanted <= len(given_cpus):
        assert picked(wanted, given_cpus) == walked(wanted, given_cpus)


def walked(wanted: int, given_cpus: list[Processor]) -> list[int]:
    groups = {}
    for one in sorted(given_cpus, key=lambda one: (one.core, one.cpu)):
        groups.setdefault((one.socket, one.numa_node), []).append(one)
    order = sorted(groups.values(), key=lambda group: (-len(group), group[0].cpu))
    taken: list[int] = []
    at, before = 0, None
    while wanted - len(taken) > 1 and not (at == 0 and before == len(taken)):
        before = len(taken) if at == 0 else before
        for one, neighbour in zip(order[at], order[at][1:], strict=False):
            if one.cpu not in taken and one.core == neighbour.core:
                taken += [one.cpu, neighbour.cpu]
                break
        at = (at + 1) % len(order)
    while len(taken) < wanted:
        taken += [one.cpu for one in order[at] if one.cpu not in taken][:1]
        at = (at + 1) % len(order)
    return taken


def test_a_cpu_given_twice_is_refused_with_its_place() -> None:
    twice = [{"cpu": 3, "core": core, "socket": 0, "numa_node": 0} for core in (0, 1)]

    answer = answered("cpu_suppress_cpuset_pick", {"cpus_wanted": 1, "processors": twice})
    assert answer == {"error": "input.processors[1].cpu: CPU 3 is given twice"}


def test_a_case_without_processors() -> None:
    answer = answered("cpu_suppress_cpuset_pick", {"cpus_wanted": 1, "processors": None})

    assert answer == {"output": {"cpus_in_pick_order": []}}
