"""An error costs the node that it comes from, never the others of its batch. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def isolated(
    work: Callable[[Sequence[T]], Sequence[R]], items: Sequence[T], failed: Callable[[T, Exception], Sequence[R]]
) -> list[R]:
    """Do work on all items at once, and one by one where that raises.

    Args:
        work: returns its results in order. Where it raises it must not have changed the state of sound items.
        items: all of them.
        failed: returns what stands for the results of an item that raises alone, too.

    """
    try:
        return list(work(items))
    except Exception:  # noqa: BLE001 - whatever it is, it must not cost the other items
        return [result for item in items for result in alone(work, item, failed)]


def alone(
    work: Callable[[Sequence[T]], Sequence[R]], item: T, failed: Callable[[T, Exception], Sequence[R]]
) -> Sequence[R]:
    """Do work on one item; what stands for its results where that raises."""
    try:
        return work([item])
    except Exception as exc:  # noqa: BLE001 - as above
        return failed(item, exc)
