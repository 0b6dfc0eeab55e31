"""Reads and writes CPU lists in the format of Kubernetes and the kernel: ``0-3,6``."""

from collections.abc import Iterable

CPU_ID_MAX = 2**16
"""A list with a higher id is invalid. It is rejected before it is expanded in memory."""


def cpu_list(text: str) -> list[int] | None:
    """Return the distinct CPU ids of a list in ascending order; None if the list is invalid."""
    ranges: list[tuple[int, int]] = []
    for part in filter(None, map(str.strip, text.split(","))):
        first, dash, last = part.partition("-")
        low = _cpu_id(first)
        high = _cpu_id(last) if dash else low
        if low is None or high is None or high < low:
            return None
        ranges.append((low, high))
    cpus: list[int] = []
    for low, high in sorted(ranges):
        cpus.extend(range(max(low, cpus[-1] + 1) if cpus else low, high + 1))
    return cpus


def cpu_ranges(cpus: Iterable[int]) -> str:
    """Format CPUs as a list that ``cpu_list`` reads."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)


def _cpu_id(digits: str) -> int | None:
    # Check the length first: a long text is never converted.
    if len(digits) > len(str(CPU_ID_MAX)) or not (digits.isascii() and digits.isdecimal()):
        return None
    return None if int(digits) > CPU_ID_MAX else int(digits)
