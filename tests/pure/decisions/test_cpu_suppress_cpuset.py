"""The next CPU set of the best-effort group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Processor
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import (
    CpusetStep,
    NodeCpus,
    PinnedPod,
    free_cpus,
    next_be_cpuset,
)
from testbed.cpu_cases import answered, labels, machine, processors

# 0 1 | 2 3 | 4 5 | 6 7
EIGHT = machine()


def pod(qos_label: str | None, *cpus: int) -> PinnedPod:
    return PinnedPod(qos_label=qos_label, cpus=cpus)


def step(allowed_milli: int = 4_000, current=range(8), pods=(), **node) -> CpusetStep:
    return next_be_cpuset(
        allowed_milli=allowed_milli, current=current, node=NodeCpus(**{"processors": EIGHT} | node), pods=pods
    )


@pytest.mark.parametrize(
    ("allowed_milli", "current", "count", "bound"),
    [
        pytest.param(4_000, 8, 4, "target", id="a cut is done at once"),
        pytest.param(4_001, 8, 5, "target", id="a part of a CPU counts as one"),
        pytest.param(2_000, 8, 2, "target", id="as many as the floor"),
        pytest.param(1_001, 8, 2, "target", id="two by rounding up"),
        pytest.param(1_000, 8, 2, "floored", id="at least two"),
        pytest.param(-5_000, 8, 2, "floored", id="also where nothing is allowed"),
        pytest.param(4_000, 3, 4, "target", id="a raise by one of eight"),
        pytest.param(5_000, 3, 4, "stepped", id="a raise by two is cut to one"),
        pytest.param(8_000, 0, 1, "stepped", id="from no CPU at all the step goes before the floor"),
    ],
)
def test_how_many_cpus(allowed_milli: int, current: int, count: int, bound: str) -> None:
    result = step(allowed_milli, range(current))

    assert (len(result.cpus), result.bound) == (count, bound)


@pytest.mark.parametrize(("total", "step_cpus"), [(1, 1), (10, 1), (11, 2), (20, 2), (64, 7), (70, 7), (128, 13)])
def test_a_raise_is_at_most_a_tenth_of_the_cpus_rounded_up(total: int, step_cpus: int) -> None:
    result = step(1_000_000, range(2), processors=machine(cores=total, threads=1))

    assert result.terms["step_cpus"] == step_cpus


def test_the_floor_is_a_parameter() -> None:
    result = next_be_cpuset(allowed_milli=0, current=range(8), node=NodeCpus(processors=EIGHT), pods=(), cpus_min=3)

    assert (result.cpus, result.bound) == ((0, 1, 2), "floored")


@pytest.mark.parametrize(
    ("pods", "more", "cpus"),
    [
        pytest.param([], {}, (0, 1, 2, 3), id="nothing is bound"),
        pytest.param([pod("LSE", 0, 1)], {}, (2, 3, 4, 5), id="CPUs of LSE pods are not taken"),
        pytest.param([pod("LSR", 0, 1)], {}, (0, 2, 3, 4), id="of LSR pods as many as their share"),
        pytest.param([pod("LSR", *range(8))], {}, (0, 1, 2, 3), id="all of LSR pods"),
        pytest.param([pod("LS", 0, 1)], {}, (0, 1, 2, 3), id="other classes' CPUs are like unbound ones"),
        pytest.param([pod("lse", 0, 1)], {}, (0, 1, 2, 3), id="as are those of a class nobody knows"),
        pytest.param([pod(None, 0, 1)], {}, (0, 1, 2, 3), id="and of none"),
        pytest.param([pod("LSE", 0, 1), pod("LS", 0, 1)], {}, (0, 1, 2, 3), id="the last pod's class counts"),
        pytest.param([pod("LS", 0, 1), pod("LSE", 0, 1)], {}, (2, 3, 4, 5), id="also when it is LSE"),
        pytest.param([pod("LSE", 99)], {}, (0, 1, 2, 3), id="CPUs the node does not have"),
        pytest.param([], {"reserved": [0, 1]}, (2, 3, 4, 5), id="reserved CPUs are not taken"),
        pytest.param([], {"system": [0, 1]}, (2, 3, 4, 5), id="nor exclusive ones of the system class"),
        pytest.param([], {"system": [0, 1], "system_exclusive": False}, (0, 1, 2, 3), id="shared ones are"),
        pytest.param([pod("LSR", 0, 1)], {"reserved": [0, 1]}, (2, 3, 4, 5), id="reserved counts before LSR"),
    ],
)
def test_which_cpus(pods: list[PinnedPod], more: dict, cpus: tuple[int, ...]) -> None:
    assert step(pods=pods, **more).cpus == cpus


@pytest.mark.parametrize(
    ("pods", "more"),
    [
        pytest.param([], {"reserved": range(8)}, id="all are reserved"),
        pytest.param([], {"system": range(8)}, id="all are the system's"),
        pytest.param([pod("LSE", *range(8))], {}, id="all are LSE pods'"),
        pytest.param([pod("LSE", 0, 1)], {"reserved": [2, 3], "system": range(4, 8)}, id="each is one of them"),
        pytest.param([], {"processors": []}, id="there are none"),
    ],
)
def test_without_a_free_cpu_the_set_stays_and_says_why(pods: list[PinnedPod], more: dict) -> None:
    """The reference divides by zero."""
    result = step(current=[5, 2], pods=pods, **more)

    assert (result.cpus, result.bound, result.terms["be_cpus"]) == ((2, 5), "no_free_cpus", 2)


def test_free_cpus_are_those_of_both_pools() -> None:
    node = NodeCpus(processors=EIGHT[::-1], reserved=[0], system=[1])

    assert free_cpus(node, [pod("LSR", 5), pod("LSE", 2), pod("LS", 3)]) == [3, 4, 5, 6, 7]
    assert free_cpus(node, [pod("LSE", *range(8))]) == []


def test_a_pool_with_too_few_cpus_gives_none_and_the_other_its_share() -> None:
    """Of 7 wanted 4 x 7 // 6 = 4 are LSR pods'; of the other two CPUs three would be wanted."""
    result = step(7_000, pods=[pod("LSR", 0, 1, 2, 3), pod("LSE", 4, 5)])

    assert (result.cpus, result.bound) == ((0, 1, 2, 3), "pool_short")


def test_where_both_pools_are_too_small_the_set_stays_and_says_why() -> None:
    result = step(4_000, current=[3, 5, 6, 7], pods=[pod("LSR", 0)], reserved=range(2, 8))

    assert (result.cpus, result.bound, result.terms["be_cpus"]) == ((3, 5, 6, 7), "pools_short", 4)


def test_the_terms_are_the_arithmetic_in_order() -> None:
    result = step(4_500, range(3), pods=[pod("LSR", 0, 1)], reserved=[7])

    assert list(result.terms.items()) == [
        ("allowed_milli", 4_500),
        ("target_cpus", 5),
        ("current_cpus", 3),
        ("step_cpus", 1),
        ("wanted_cpus", 4),
        ("lsr_pool_cpus", 2),
        ("ls_pool_cpus", 5),
        ("wanted_of_lsr_cpus", 1),
        ("wanted_of_ls_cpus", 3),
        ("be_cpus", 4),
    ]


cpu_ids = st.lists(st.integers(0, 31), max_size=12)
pinned = st.lists(st.builds(PinnedPod, qos_label=labels, cpus=cpu_ids), max_size=4)
allowances = st.integers(-4_000, 34_000)


@given(allowances, cpu_ids, processors(), pinned, cpu_ids, cpu_ids, st.booleans())
def test_no_reserved_exclusive_or_lse_cpu_ever_comes_in(
    allowed_milli, current, cpus, pods, reserved, system, exclusive
) -> None:
    node = NodeCpus(processors=cpus, reserved=reserved, system=system, system_exclusive=exclusive)
    result = next_be_cpuset(allowed_milli=allowed_milli, current=current, node=node, pods=pods)
    last = {cpu: one.qos_label for one in pods for cpu in one.cpus}
    forbidden = {*reserved, *(system if exclusive else []), *(cpu for cpu in last if last[cpu] == "LSE")}

    assert not (set(result.cpus) - set(current)) & forbidden
    if result.bound not in {"no_free_cpus", "pools_short"}:
        assert not set(result.cpus) & forbidden
        assert set(result.cpus) <= {one.cpu for one in cpus}


@given(allowances, cpu_ids, processors(), pinned, cpu_ids)
def test_never_more_than_is_allowed_nor_a_raise_above_a_tenth(allowed_milli, current, cpus, pods, reserved) -> None:
    node = NodeCpus(processors=cpus, reserved=reserved)
    result = next_be_cpuset(allowed_milli=allowed_milli, current=current, node=node, pods=pods)

    assert list(result.cpus) == sorted(set(result.cpus))
    assert len(result.cpus) == result.terms["be_cpus"] <= len(set(current)) + -(-len(cpus) // 10)
    if result.bound not in {"no_free_cpus", "pools_short"}:
        assert 1 <= len(result.cpus) <= max(2, -(-allowed_milli // 1000))


@given(allowances, cpu_ids, processors(), pinned, st.randoms(use_true_random=False))
def test_the_order_of_processors_and_of_the_current_set_does_not_matter(
    allowed_milli: int, current: list[int], cpus: list[Processor], pods: list[PinnedPod], random
) -> None:
    shuffled = random.sample(cpus, len(cpus))

    assert next_be_cpuset(
        allowed_milli=allowed_milli, current=current, node=NodeCpus(processors=cpus), pods=pods
    ) == next_be_cpuset(
        allowed_milli=allowed_milli, current=current[::-1], node=NodeCpus(processors=shuffled), pods=pods
    )


PROCESSORS = [{"cpu": cpu, "core": cpu // 2, "socket": 0, "numa_node": 0} for cpu in range(8)]
CASE = {"be_allowed_cpu_milli": 4_000, "current_be_cpuset": [0, 1, 2], "processors": PROCESSORS}


def test_a_case_needs_no_more_than_what_is_always_there() -> None:
    absent = dict.fromkeys(
        ["pods_with_cpuset", "reserved_cpus", "system_qos_cpus", "system_qos_exclusive", "current_be_cpuset"]
    )

    assert answered("cpu_suppress_cpuset", CASE) == {"output": {"be_cpuset": [0, 1, 2, 3]}}
    assert answered("cpu_suppress_cpuset", CASE | absent) == {"output": {"be_cpuset": [0]}}
    assert answered("cpu_suppress_cpuset", CASE | {"cpus_min": 3, "be_allowed_cpu_milli": 0}) == {
        "output": {"be_cpuset": [0, 1, 2]}
    }


@pytest.mark.parametrize(
    ("more", "field"),
    [
        pytest.param(
            {"pods_with_cpuset": [{"cpuset": "0"}, {"cpuset": None}, {"cpuset": "3-1"}]},
            "input.pods_with_cpuset[2].cpuset",
            id="of a pod",
        ),
        pytest.param({"reserved_cpus": "0-9999999999"}, "input.reserved_cpus", id="reserved, beyond all memory"),
        pytest.param({"system_qos_cpus": "all"}, "input.system_qos_cpus", id="of the system class"),
    ],
)
def test_an_unreadable_list_is_refused_with_its_place(more: dict, field: str) -> None:
    answer = answered("cpu_suppress_cpuset", CASE | more)

    assert answer == {"error": f"{field}: not a CPU list such as 0-3,6 with ids up to 65536"}


def test_a_cpu_given_twice_is_refused_with_its_place() -> None:
    answer = answered("cpu_suppress_cpuset", CASE | {"processors": [*PROCESSORS, PROCESSORS[5]]})

    assert answer == {"error": "input.processors[8].cpu: CPU 5 is given twice"}
