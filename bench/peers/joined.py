"""A pod's use in a sample, in rows or in columns: a peer joins the names to the numbers. Pure."""

from collections.abc import Sequence

NODE_NUMBERS = 6
"""In columns, before the pods' numbers: seq, time, interval, CPU, memory, time since the limit was raised."""
TIME, CPU, MEM = 1, 3, 4
"""Places among them."""

Use = tuple[str, int, int, bool]
"""Uid, millicores, bytes, whether it is a batch pod."""


def uses(uids: Sequence[str], be_group: str, now: Sequence[int]) -> list[Use]:
    """Give each pod its numbers.

    Args:
        uids: of the pod list, in its order, from the newest keyframe.
        be_group: a character for each pod.
        now: the sample's numbers.

    """
    batch = [one == "1" for one in be_group]
    return list(zip(uids, now[NODE_NUMBERS::2], now[NODE_NUMBERS + 1 :: 2], batch, strict=True))
