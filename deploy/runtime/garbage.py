"""Tunes Python's garbage collector and glibc's allocator for processes with many records."""

import asyncio
import ctypes
import gc

THRESHOLDS = 100_000, 50, 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""
LARGE_BYTES = 1 << 20
TRIM_BYTES = 4 << 20
TRIM_S = 15.0


def seldom() -> None:
    """Run the cycle collector rarely, and exclude existing objects.

    Records have no reference cycles. At Python's default of 700 the collector takes a sixth of a worker's time. It
    takes half of the time in which the scheduler extender reads a thousand nodes.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def returned() -> None:
    """Return large blocks of memory immediately, mostly of fetches.

    By default glibc raises its threshold to the largest freed block: fifty megabytes of a worker's memory at 10,000
    nodes. Other C libraries are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)


async def trimmed() -> None:
    """Return free memory between small blocks periodically.

    Short-lived records fragment the heap between long-lived state of nodes: 200 MB at 10,000 nodes. A trim takes 3 ms
    per thousand nodes. Without ``malloc_trim`` the function returns.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(TRIM_S)
        trim(0)
