"""What the name of a resource implies."""

import pytest

from slacktide.streams.decisions.numa.topology import is_affine, is_host_level, is_memory, is_native, whole_cpus
from testbed.numa_nodes import as_read
from testbed.vectors import each_row


@each_row("resource", "native", "affine", "host_level")
def test_a_name_implies_who_provides_it(resource: str, native: bool, affine: bool, host_level: bool) -> None:  # noqa: FBT001
    assert (is_native(resource), is_affine(resource), is_host_level(resource)) == (native, affine, host_level)


def test_cpu_is_affine_and_no_memory() -> None:
    assert not is_memory("cpu")


def test_names_are_compared_as_texts() -> None:
    """As they come out of a record, no object of the program."""
    assert is_affine(as_read("cpu"))
    assert is_memory(as_read("memory"))


@pytest.mark.parametrize(
    ("milli", "whole"), [(0, False), (500, False), (1000, True), (1500, False), (2000, True), (-1000, False)]
)
def test_exclusive_cpus_are_whole(milli: int, whole: bool) -> None:  # noqa: FBT001
    assert whole_cpus(milli) is whole
