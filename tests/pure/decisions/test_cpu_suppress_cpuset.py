"""The next CPU set of the best-effort group."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Processor
from slacktide.streams.decisions.suppress.cpu_suppress_cpuset import NodeCpus, PinnedPod, free_cpus, next_be_cpuset
from testbed.cpu_cases import labels, machine, processors

# 0 1 | 2 3 | 4 5 | 6 7
EIGHT = machine()


def pod(qos_label: str | None, *cpus: int) -> PinnedPod:
    return PinnedPod(qos_label=qos_label, cpus=cpus)


def test_free_cpus_are_those_of_both_pools() -> None:
    node = NodeCpus(processors=EIGHT[::-1], reserved=[0], system=[1])

    assert free_cpus(node, [pod("LSR", 5), pod("LSE", 2), pod("LS", 3)]) == [3, 4, 5, 6, 7]
    assert free_cpus(node, [pod("LSE", *range(8))]) == []


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
