"""What ``cpu_pressure`` reads: idle time of the node and stall of groups, or a refusal that shows the text."""

import pytest

from slacktide.agents.node.cgroup.parse import busy_ticks, idle_ticks, stall_us
from testbed.vectors import each_row

STAT = b"cpu  3357 10 4313 1362393 500 7 9 21 40 0\ncpu0 1679 5 2156 681196 250 3 4 10 20 0\nbtime 1700000000\n"
PSI = b"some avg10=1.53 avg60=0.40 avg300=0.10 total=58761459\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=123\n"
LARGEST = 10**18 - 1
"""Of 18 digits, as the schema of a record allows."""


def test_idle_time_is_that_of_all_cpus_and_a_wait_for_disks_is_in_it() -> None:
    assert idle_ticks(STAT) == 1_362_393 + 500


def test_busy_and_idle_time_leave_out_steal_and_do_not_count_guest_time_twice() -> None:
    assert busy_ticks(STAT) + idle_ticks(STAT) == 3_357 + 10 + 4_313 + 1_362_393 + 500 + 7 + 9


def test_a_kernel_without_steal_and_guest_time_is_read_too() -> None:
    assert idle_ticks(b"cpu 1 2 3 40 5 6 7\n") == 45


def test_stall_is_the_total_of_some() -> None:
    assert stall_us(PSI) == 58_761_459


def test_stall_is_read_of_a_kernel_that_has_no_line_full_for_cpu() -> None:
    assert stall_us(PSI.splitlines(keepends=True)[0]) == 58_761_459


def test_large_numbers_are_read_to_the_unit() -> None:
    assert idle_ticks(b"cpu 0 0 0 %d %d 0 0\n" % (LARGEST, LARGEST)) == 2 * LARGEST
    assert stall_us(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=%d\n" % LARGEST) == LARGEST


@each_row("text")
def test_idle_time_of_malformed_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="malformed"):
        idle_ticks(text)


@each_row("text")
def test_stall_of_malformed_text_is_refused(text: bytes) -> None:
    """A total that is cut off would be smaller than the one before it."""
    with pytest.raises(ValueError, match="malformed"):
        stall_us(text)


def test_a_refusal_shows_the_text() -> None:
    with pytest.raises(ValueError, match=r"'nonsense, .* not 'cpu' and its times"):
        idle_ticks(b"nonsense, to read\n")
    with pytest.raises(ValueError, match=r"'nonsense, .* not 'some' and its total"):
        stall_us(b"nonsense, to read\n")
