"""Memory of processes that take in records by the thousand: what Python and the C library do with it by themselves."""

from __future__ import annotations

import ctypes
import gc

THRESHOLDS = 100_000, 50, 20
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc's ``mallopt``."""
LARGE_BYTES = 1 << 20
TRIM_BYTES = 4 << 20


def seldom() -> None:
    """Look for garbage in cycles once in so many objects, and at what is there now never again.

    What a record is made into dies by itself, without cycles. At Python's usual 700 the looks cost a sixth of a
    worker's time, and half of what a scheduler's part needs to hear of a thousand nodes.
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
