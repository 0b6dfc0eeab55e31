"""The part that a node's samples repeat, as encoded bytes. A sample with the same prefix is not decoded again."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Generic, TypeVar

import numpy as np

from slacktide.schemas.inventory import NodeFacts
from slacktide.schemas.proof import Verdict
from slacktide.schemas.sample_columns import NODE_NUMBERS, Of
from slacktide.streams.columns.lines import Boot, Line
from slacktide.streams.columns.offered import OfferInputs
from slacktide.streams.columns.rings import Bools, Ints
from slacktide.streams.columns.series import NodeWindow
from slacktide.streams.decisions.known_pods import KnownPods

N = TypeVar("N")

FIT: Final = slice(0, 10)
"""Columns of ``Head.numbers``: the result of ``screen.fit``,"""
ROW, PODS, SPREAD_MS, SERIAL = range(10, 14)
"""row of the window, pods of the list, delay of a minute's segment after its end, the head's serial number,"""
CAPACITY: Final = slice(14, 16)
"""and the CPU and memory capacity that reclaimed resources are computed from."""
_serials = count(1)


@dataclass(slots=True, eq=False)
class Head(Generic[N]):
    """A node as its newest sample describes it."""

    node: N
    window: NodeWindow
    partition: int
    of: Of
    """Without limits: they follow the newest sample."""
    prefix: bytes
    """The newest sample up to its numbers, split at its limits."""
    before_limits: bytes
    behind_limits: bytes
    quota_us: int
    facts: NodeFacts
    pods: KnownPods
    uids: list[str]
    best_effort: Bools
    """Which of the pods count as best-effort."""
    numbers: Ints
    """int64 [16]"""
    commas: int
    """Commas in its list of numbers."""
    window_ms: int
    restarted: bool
    """Whether the node's boot or clock differs from that of the head before."""
    boot: Boot
    names: Sequence[bytes]
    """Policy version, facts and pods revision, as JSON texts."""
    lines: dict[tuple[int, Verdict], Line] = field(default_factory=dict)
    """Templates of answers, by ``screen.case_of`` and the verdict on a sample's proof."""
    offer: OfferInputs | None = None
    settled: bool = False
    """Whether the window follows this pod list."""
    turn: int = 0
    """The last turn with its samples,"""
    first: int = 0
    """and the place of the first one in that turn."""
    later: int = 0
    """The last turn from which the node's samples are left out: one of them has another head."""
    counted: int = 0
    newest: int = -1
    last_ms: int = 0
    """The last turn whose samples were counted, with their highest seq and newest append time."""

    @property
    def group(self) -> AbstractSet[str]:
        """Return the pods in the best-effort group."""
        return frozenset(uid for uid, in_group in zip(self.uids, self.of.be_group, strict=True) if in_group == "1")

    def uids_of(self, _: str) -> list[str]:
        """Return the pods of its list."""
        return self.uids


def numbers_of(
    fit: tuple[int, ...], window: NodeWindow, *, pods: int, spread_ms: int, capacity: tuple[int, int]
) -> Ints:
    """Return a head's numbers in one array, int64 [16], because concatenating arrays is fast.

    ``spread_ms``: delay of a minute's segment after its end. ``capacity``: CPU in millicores and memory in bytes.
    """
    return np.array((*fit, window.row, pods, spread_ms, next(_serials), *capacity), np.int64)


def renumber(head: Head[N]) -> None:
    """Give a head a new serial number, so that its published figures are compared again."""
    head.numbers[SERIAL] = next(_serials)


def joined_numbers(heads: Sequence[Head[N]]) -> Ints:
    """Return the numbers of some heads, int64 [n, 16]."""
    return np.concatenate([head.numbers for head in heads]).reshape(len(heads), -1)


def split_limits(prefix: bytes, limits: bytes) -> tuple[bytes, bytes] | None:
    """Split a head at its limits; None: they are not encoded as the codec does."""
    before, found, behind = prefix.partition(_LIMITS + limits)
    return (before + _LIMITS, behind) if found and behind[:1] == b"," else None


def head_of_list(pods: KnownPods, be_group: str) -> tuple[list[str], Bools] | None:
    """Return a list's uids, and which are best-effort; None: a uid twice, or ``be_group`` is of another list."""
    if not len(pods.by_uid) == len(pods) == len(be_group):
        return None
    return pods.uids, np.frombuffer(bytes([pod.kind.best_effort for pod in pods.each()]), np.bool_)


def numbers_commas(pods: int) -> int:
    """Return the number of commas in a list of numbers."""
    return NODE_NUMBERS - 1 + 2 * pods


_LIMITS = b'"limits":'
