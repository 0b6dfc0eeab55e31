"""Joins consecutive blocks, so that the fixed cost of arrays is paid once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from slacktide.streams.columns.block import Block, Columns

T = TypeVar("T")


def joined(answered: Iterable[T], most: int) -> Iterator[T]:
    """Join consecutive blocks up to ``most`` samples; each node's samples keep their order."""
    some: list[Any] = []  # blocks, therefore of T
    for one in answered:
        count = len(one.values) if isinstance(one, Block) else 0
        if some and (not count or _samples(some) + count > most):
            yield _one(some)
            some = []
        if count:
            some.append(one)
        else:
            yield one
    if some:
        yield _one(some)


def _samples(blocks: Sequence[Block[Any]]) -> int:
    return sum(len(block.values) for block in blocks)


def _one(blocks: Sequence[Block[Any]]) -> Any:
    if len(blocks) == 1:
        return blocks[0]
    return Block(
        heads=_chained(block.heads for block in blocks),
        numbers=np.concatenate([block.numbers for block in blocks]),
        values=_chained(block.values for block in blocks),
        quotas_us=_chained(block.quotas_us for block in blocks),
        newer=np.concatenate([block.newer for block in blocks]),
        columns=Columns(*map(np.concatenate, zip(*(block.columns for block in blocks), strict=True))),
        met=np.concatenate([block.met for block in blocks]),
    )


def _chained(parts: Iterable[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(parts))
