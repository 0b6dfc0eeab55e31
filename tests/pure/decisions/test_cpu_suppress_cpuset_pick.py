"""Which CPUs are picked first."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Processor
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import pick_cpus
from testbed.cpu_cases import machine, processors


def picked(wanted: int, given_cpus: list[Processor]) -> list[int]:
    return list(pick_cpus(wanted, given_cpus).cpus)


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
