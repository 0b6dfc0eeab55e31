"""Isolates errors within a batch: one node's error does not affect the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def isolated(
    work: Callable[[Sequence[T]], Sequence[R]], items: Sequence[T], failed: Callable[[T, Exception], Sequence[R]]
) -> Sequence[R]:
    """Process all items in one call; if that raises, one by one; ``failed`` returns an item's substitute results.

    If ``work`` raises, it must not have changed the state of valid items.
    """
    try:
        return work(items)
    except Exception:  # noqa: BLE001 - an error must not affect the other items
        return [result for item in items for result in _alone(work, item, failed)]


def _alone(
    work: Callable[[Sequence[T]], Sequence[R]], item: T, failed: Callable[[T, Exception], Sequence[R]]
) -> Sequence[R]:
    try:
        return work([item])
    except Exception as exc:  # noqa: BLE001 - as above
        return failed(item, exc)
