"""When Python looks for garbage in cycles: seldom, in processes that take in records by the thousand."""

from __future__ import annotations

import gc

THRESHOLDS = 100_000, 50, 20


def seldom() -> None:
    """Look once in so many objects, and at what is there now never again.

    What a record is made into dies by itself, without cycles. At Python's usual 700 the looks cost a sixth of a
    worker's time, and half of what a scheduler's part needs to hear of a thousand nodes.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
