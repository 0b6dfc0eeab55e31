"""CPU lists, from annotations that anybody may write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import NodeFacts, Resources
from slacktide.streams.decisions.cpu_list import CPU_ID_MAX, cpu_list, cpu_ranges
from slacktide.streams.decisions.resources.node_load import node_reserved


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        pytest.param("4,2-3,0", [0, 2, 3, 4], id="parts in any order"),
        pytest.param("0-3,2-5,3", [0, 1, 2, 3, 4, 5], id="ranges that overlap"),
        pytest.param("0-5,1-2,4", [0, 1, 2, 3, 4, 5], id="ranges in ranges"),
        pytest.param("7-7", [7], id="a range of one"),
        pytest.param("0-0,0", [0], id="CPU 0 twice"),
        pytest.param("1,,2,", [1, 2], id="empty parts are passed over"),
        pytest.param("65536", [65_536], id="the largest id"),
    ],
)
def test_what_a_list_says(text: str, cpus: list[int]) -> None:
    assert cpu_list(text) == cpus


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("1-2-3", id="a range of three"),
        pytest.param("-1", id="a negative id"),
        pytest.param("0x1", id="hexadecimal"),
        pytest.param("1 - 2", id="blanks in a range"),
        pytest.param("٣", id="digits of another script"),
        pytest.param("²", id="superscript digits"),
        pytest.param("0-3,x", id="one bad part spoils the list"),
        pytest.param("x,0-3", id="also the first"),
        pytest.param("0-9999999999", id="a range that would fill the memory"),
        pytest.param("65537", id="an id no machine has"),
        pytest.param("0-65537", id="a range beyond it"),
        pytest.param("9" * 5_000, id="more digits than Python makes a number of"),
    ],
)
def test_what_is_no_list(text: str) -> None:
    assert cpu_list(text) is None


def test_many_long_ranges_are_one_long_range() -> None:
    assert cpu_list(",".join([f"0-{CPU_ID_MAX}"] * 20_000)) == list(range(CPU_ID_MAX + 1))


@given(st.text())
def test_any_text_is_a_list_of_distinct_ascending_ids_or_none(text: str) -> None:
    cpus = cpu_list(text)

    assert cpus is None or cpus == sorted(set(cpus))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6))
def test_a_list_holds_what_its_ranges_hold(ranges: list[tuple[int, int]]) -> None:
    text = ",".join(f"{low}-{low + more}" if more else str(low) for low, more in ranges)

    assert cpu_list(text) == sorted({cpu for low, more in ranges for cpu in range(low, low + more + 1)})


@pytest.mark.parametrize(
    ("cpus", "text"),
    [
        pytest.param([], "", id="none"),
        pytest.param([5], "5", id="one"),
        pytest.param([5, 6], "5-6", id="two side by side"),
        pytest.param([4, 6], "4,6", id="two apart"),
        pytest.param([300, 0, 1, 3, 2, 301, 6], "0-3,6,300-301", id="in any order"),
        pytest.param([1, 1, 2, 2], "1-2", id="twice"),
    ],
)
def test_how_a_list_is_written(cpus: list[int], text: str) -> None:
    assert cpu_ranges(cpus) == text


@given(st.sets(st.integers(0, 40) | st.integers(0, CPU_ID_MAX), max_size=20))
def test_a_written_list_reads_as_what_was_written(cpus: set[int]) -> None:
    assert cpu_list(cpu_ranges(cpus)) == sorted(cpus)


def test_an_absurd_range_voids_the_nodes_reservation() -> None:
    facts = NodeFacts(
        name="node-1",
        capacity=Resources(cpu_milli=8_000),
        allocatable=Resources(cpu_milli=7_500),
        reserved=Resources(cpu_milli=4_000),
        reserved_cpus="0-9999999999",
    )

    assert node_reserved(facts).cpu_milli == 500
