"""The plan that binds the best-effort group to CPUs, carried out on a model of cgroup v1's rules."""

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from slacktide.agents.node.cgroup.plan import BEST_EFFORT_ITSELF, Write, plan_cpuset_v1, plan_cpuset_v2
from slacktide.streams.decisions.cpu_list import cpu_list, cpu_ranges

TREE = [PurePosixPath(path) for path in ("", "pod1", "pod1/c1", "pod1/c2", "pod2", "pod2/c1")]
cpus = st.frozensets(st.integers(0, 5), min_size=1)


@st.composite
def trees(draw):
    """What groups have: none has a CPU that the group above lacks."""
    held = {}
    for path in TREE:
        above = held[path.parent] if path.parts else frozenset(range(6))
        own = draw(st.booleans())
        held[path] = draw(st.frozensets(st.sampled_from(sorted(above)), min_size=1)) if own else above
    return held


def steps(held, writes):
    """The tree after each write; the kernel's rules hold after all of them."""
    now = dict(held)
    for write in writes:
        now = now | {write.group: frozenset(cpu_list(write.text))}
        assert now[write.group], "a group was left without CPUs"
        assert all(now[path] <= now[path.parent] for path in now if path.parts)
        yield now


@given(trees(), cpus)
def test_every_write_is_one_that_the_kernel_takes_and_the_last_is_what_is_wanted(held, wanted) -> None:
    *_, last = [held, *steps(held, plan_cpuset_v1(held, wanted))]

    assert last[BEST_EFFORT_ITSELF] == wanted
    for path in TREE:
        follows = held[path] == held[BEST_EFFORT_ITSELF] or not held[path] <= wanted
        assert last[path] == (wanted if follows else held[path])


@given(trees(), cpus)
def test_a_cut_gives_no_group_a_cpu_that_the_best_effort_group_lacked(held, wanted) -> None:
    before = held[BEST_EFFORT_ITSELF]
    cut = wanted & before
    if cut:
        for now in steps(held, plan_cpuset_v1(held, cut)):
            assert now[BEST_EFFORT_ITSELF] <= before


@given(trees(), cpus)
def test_the_same_again_writes_nothing(held, wanted) -> None:
    *_, last = [held, *steps(held, plan_cpuset_v1(held, wanted))]

    assert plan_cpuset_v1(last, wanted) == []


def test_what_was_cut_comes_back_with_the_best_effort_group() -> None:
    whole = frozenset(range(4))
    held = dict.fromkeys(TREE, whole) | {
        PurePosixPath("pod2"): frozenset({3}),
        PurePosixPath("pod2/c1"): frozenset({3}),
    }
    *_, cut = steps(held, plan_cpuset_v1(held, frozenset({0, 1})))
    *_, back = steps(cut, plan_cpuset_v1(cut, whole))

    assert set(cut.values()) == {frozenset({0, 1})}
    assert set(back.values()) == {whole}


def test_a_group_without_cpus_is_left_alone() -> None:
    held = {BEST_EFFORT_ITSELF: frozenset({0, 1}), PurePosixPath("new"): frozenset()}

    assert plan_cpuset_v1(held, frozenset({0})) == [Write(BEST_EFFORT_ITSELF, "cpuset.cpus", "0")]


def test_on_v2_one_write_is_enough() -> None:
    assert plan_cpuset_v2(frozenset({0, 1, 2, 5})) == [Write(BEST_EFFORT_ITSELF, "cpuset.cpus", "0-2,5")]


@given(st.sets(st.integers(0, 300)))
def test_a_list_of_cpus_reads_back(some) -> None:
    assert cpu_list(cpu_ranges(some)) == sorted(some)
