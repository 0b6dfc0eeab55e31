"""CPU lists, from annotations that anybody may write."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.streams.decisions.cpu_list import CPU_ID_MAX, cpu_list, cpu_ranges
from slacktide.streams.decisions.resources.node_load import node_reserved
from testbed.vectors import stated_test

test_cases = stated_test("cpu_list", cpu_list, cpu_ranges, node_reserved)


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


@given(st.sets(st.integers(0, 40) | st.integers(0, CPU_ID_MAX), max_size=20))
def test_a_written_list_reads_as_what_was_written(cpus: set[int]) -> None:
    assert cpu_list(cpu_ranges(cpus)) == sorted(cpus)
