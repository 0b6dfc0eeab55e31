"""Memory of processes that take in records by the thousand: what Python and the C library do with it by themselves."""

from __future__ import annotations

import asyncio
import ctypes
import gc

THRESHOLDS = 100_000, 50, 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc's ``mallopt``."""
LARGE_BYTES = 1 << 20
TRIM_BYTES = 4 << 20
TRIM_S = 15.0


def seldom() -> None:
    """Look for garbage in cycles once in so many objects, and at what is there now never again.

    What a record is made into dies by itself, without cycles. At Python's usual 700 the looks cost a sixth of a
    worker's time, and half of what a scheduler's part needs to read of a thousand nodes.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def returned() -> None:
    """Give large pieces of memory back as soon as they are free: fetches, mostly.

    Left to itself, glibc takes the largest piece that was ever freed for the usual size, and keeps as much between
    small ones: fifty megabytes of a worker's at 10,000 nodes. Another C library is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)


async def trimmed() -> None:
    """Give free memory between small pieces back, now and then.

    Records come and go by the megabyte between what is kept of nodes. At 10,000 nodes that leaves 200 MB in holes. To
    look for them takes 3 ms for a thousand nodes. Another C library than glibc is left as it is.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(TRIM_S)
        trim(0)
