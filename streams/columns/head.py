"""What a node's samples repeat, kept as the bytes in which it stands: a sample that begins so is not decoded."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Generic, TypeVar

import numpy as np

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.proof import Verdict
from slacktide.schemas.sample_columns import NODE_NUMBERS, Of
from slacktide.streams.columns.lines import Boot, Line, Names
from slacktide.streams.columns.market import Market
from slacktide.streams.columns.node_window import NodeWindow
from slacktide.streams.columns.rings import Ints
from slacktide.streams.columns.screen import Bools
from slacktide.streams.decisions.known_pods import KnownPods

N = TypeVar("N")

FIT: Final = slice(0, 6)
"""Columns of ``Head.numbers``: what ``screen.fit`` gave,"""
ROW, PODS, SPREAD_MS, SERIAL = range(6, 10)
"""row of the window, pods of the list, delay of a minute's segment after its end, and the head's own number,"""
CAPACITY: Final = slice(10, 12)
"""CPU and memory by which sold figures go."""
_serials = count(1)


@dataclass(slots=True, eq=False)
class Head(Generic[N]):
    """A node, as its newest sample in columns names it."""

    node: N
    """Its state."""
    window: NodeWindow
    partition: int
    of: Of
    """Without its limits, which follow the newest sample."""
    prefix: bytes
    """The newest sample up to its numbers: in two parts around its limits."""
    before_limits: bytes
    behind_limits: bytes
    quota_us: int
    """In force, as ``screen.quota_of`` has it."""
    facts: NodeFacts
    pods: KnownPods
    uids: list[str]
    """In order of the list."""
    best_effort: Bools
    """Which of these count as best-effort."""
    group: AbstractSet[str]
    """Which of these lie in the best-effort group."""
    numbers: Ints
    """int64 [12], made by ``numbers_of``."""
    commas: int
    """How many stand in its list of numbers."""
    window_ms: int
    restarted: bool
    """Whether its first sample is of another boot or clock than the node's before."""
    boot: Boot
    names: Names
    lines: dict[tuple[int, Verdict], Line] = field(default_factory=dict)
    """Templates of answers, by ``screen.case_of`` and what the check of a sample's proof found."""
    market: Market | None = None
    settled: bool = False
    """Whether its window goes by this list."""
    turn: int = 0
    """The last turn in which the node has a sample."""
    later: int = 0
    """The last turn that the node's samples are not in any more: one of them has another head."""

    def uids_of(self, _: str) -> list[str]:
        """Give the pods of its list, which is the one that its samples name."""
        return self.uids


def numbers_of(
    fit: tuple[int, ...], window: NodeWindow, *, pods: int, spread_ms: int, capacity: tuple[int, int]
) -> Ints:
    """Give a head's numbers in one array, since arrays are joined faster than numbers are gathered.

    Args:
        fit: what ``screen.fit`` gave.
        window: of the node.
        pods: of the list.
        spread_ms: after a minute's end its segment is published so much later.
        capacity: that sold figures go by: CPU in millicores and memory in bytes.

    Returns:
        int64 [12], see ``FIT`` and the names behind it.

    """
    return np.array((*fit, window.row, pods, spread_ms, next(_serials), *capacity), np.int64)


def renumber(head: Head[N]) -> None:
    """Give a head another number of its own: what was published by the one before is compared anew."""
    head.numbers[SERIAL] = next(_serials)


def joined_numbers(heads: Sequence[Head[N]]) -> Ints:
    """Give the numbers of some heads, int64 [n, 12]."""
    return np.concatenate([head.numbers for head in heads]).reshape(len(heads), -1)


def split_limits(prefix: bytes, limits: bytes) -> tuple[bytes, bytes] | None:
    """Part a head at its limits; None: they do not stand in it as the codec writes them."""
    before, found, behind = prefix.partition(_LIMITS + limits)
    return (before + _LIMITS, behind) if found and behind[:1] == b"," else None


def head_of_list(pods: KnownPods, be_group: str) -> tuple[list[str], Bools, AbstractSet[str]] | None:
    """Give the uids of a list's pods, which count as best-effort, and which lie in that group.

    None: a uid is twice in the list, or the list is not the one that the group was read by.
    """
    uids = list(pods.names)
    if not len(uids) == len(pods) == len(be_group):
        return None
    counted = np.array([uid in pods.best_effort for uid in uids], np.bool_)
    return uids, counted, frozenset(uid for uid, in_group in zip(uids, be_group, strict=True) if in_group == "1")


def numbers_commas(pods: int) -> int:
    """How many commas stand in a list of numbers."""
    return NODE_NUMBERS - 1 + 2 * pods


_LIMITS = b'"limits":'
