"""The samples of a turn as columns. A node may occur several times, always with the same pods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np

from slacktide.schemas.bounds import AMOUNT_MAX, TIME_MS_MAX
from slacktide.schemas.sample_columns import NODE_NUMBERS, NONE
from slacktide.streams.columns.head import ROW, Head
from slacktide.streams.columns.numbers import END, NoNumbersError
from slacktide.streams.columns.rings import Floats, Ints
from slacktide.streams.columns.screen import Bools, Samples
from slacktide.streams.columns.windows import Wave

N = TypeVar("N")

SEQ_MAX: Final = 9_999_999_999
"""The largest sequence number that fits the ten digits of an id."""
_LEAST: Final = 0, 0, 0, 0, 0, NONE
_MOST: Final = SEQ_MAX, TIME_MS_MAX, TIME_MS_MAX, AMOUNT_MAX, AMOUNT_MAX, TIME_MS_MAX


class Columns(NamedTuple):
    """Numbers of samples, in order of the samples or of their pods."""

    node: Ints
    """int64 [n, 6], see ``sample_columns.NUMBERS``."""
    pods: Ints
    """int64 [N, 2]: CPU in millicores and memory in bytes of all pods, sample by sample."""
    counts: Ints
    """Pods of each sample."""


def columns(flat: Ints, counts: Ints) -> Columns:
    """Split the numbers into those of nodes and those of pods.

    Args:
        flat: all lists, as ``numbers`` returns them.
        counts: pods of each sample.

    Raises:
        NoNumbersError: a list is too long or too short.
    """
    width = NODE_NUMBERS + 2 * counts
    ends = np.cumsum(width + 1) - 1
    if len(flat) != ends[-1] + 1 or (flat[ends] != END).any():
        raise NoNumbersError("a list has not as many numbers as there are pods")
    if (counts == counts[0]).all():
        table = flat.reshape(len(counts), -1)
        return Columns(table[:, :NODE_NUMBERS], table[:, NODE_NUMBERS:-1].reshape(-1, 2), counts)
    places = (ends - width)[:, None] + np.arange(NODE_NUMBERS)
    of_pods = np.ones(len(flat), np.bool_)
    of_pods[places.ravel()] = of_pods[ends] = False
    return Columns(flat[places], flat[of_pods].reshape(-1, 2), counts)


def sums(values: Ints, counts: Ints) -> Ints:
    """Sum the values of each sample, exactly; ``values``: int64 [N] or [N, k]. ``counts``: how many each sample has."""
    ends = np.cumsum(counts)
    found: Ints
    if counts.min(initial=1) > 0:
        found = np.add.reduceat(values, ends - counts, 0) if len(values) else np.zeros_like(values)
    else:
        totals = np.zeros((len(values) + 1, *values.shape[1:]), np.int64)
        np.cumsum(values, 0, out=totals[1:])
        found = totals[ends] - totals[ends - counts]
    return found


def sound(its: Columns) -> Bools:
    """Find the samples whose figures are in range, by the same limits as ``sample_columns_codec``."""
    good: Bools = np.all((its.node >= _LEAST) & (its.node <= _MOST), 1)
    # As unsigned numbers, negative ones are large. One check of all numbers takes a tenth of the time of a check by
    # row.
    if its.pods.view(np.uint64).max(initial=0) <= AMOUNT_MAX:
        return good
    absent = (its.pods == NONE).all(1)
    of_pods = absent | ((its.pods >= 0) & (its.pods <= AMOUNT_MAX)).all(1)
    good &= sums((~of_pods).astype(np.int64), its.counts) == 0
    return good


def ages_ms(its: Columns, now_ms: int, without: Sequence[int]) -> list[int]:
    """Return the ages of all samples except ``without``: the worker's clock minus the node's."""
    found: list[int] = np.maximum(0, now_ms - np.delete(its.node[:, 1], without)).tolist()
    return found


def is_sound(numbers: Sequence[int]) -> bool:
    """Check the numbers of one sample in the same way. Their count must match its pods."""
    pods = numbers[NODE_NUMBERS:]
    if len(numbers) < NODE_NUMBERS or len(pods) % 2:
        return False
    if not all(least <= number <= most for least, number, most in zip(_LEAST, numbers, _MOST, strict=False)):
        return False
    if min(pods, default=0) >= 0 and max(pods, default=0) <= AMOUNT_MAX:
        return True
    pairs = zip(pods[::2], pods[1::2], strict=True)
    return all(NONE == cpu == mem or (0 <= cpu <= AMOUNT_MAX and 0 <= mem <= AMOUNT_MAX) for cpu, mem in pairs)


def samples(its: Columns, heads: Sequence[Head[N]], quotas_us: Ints) -> Samples:
    """Return the input of the suppress rule, from sound samples."""
    used_milli = np.maximum(its.pods[:, 0], 0)
    best_effort = np.concatenate([head.best_effort for head in heads])
    return Samples(
        quota_us=quotas_us,
        node_milli=its.node[:, 3],
        node_bytes=its.node[:, 4],
        be_milli=sums(used_milli * best_effort, its.counts),
        all_milli=sums(used_milli, its.counts),
        since_raise_ms=its.node[:, 5],
    )


class Named(NamedTuple):
    """The sample that figures were computed from."""

    node: str
    boot_id: str
    seq: int
    observed_ms: int
    facts_revision: str
    pods_revision: str


class Block(NamedTuple, Generic[N]):
    """Answered samples that are to be merged into the windows."""

    heads: Sequence[Head[N]]
    numbers: Ints
    """int64 [n, 12]"""
    values: Sequence[bytes]
    quotas_us: Sequence[int]
    """The quota in force, see ``screen.quota_of``."""
    newer: Bools
    """Whether the seq is higher than all before of its node."""
    columns: Columns
    met: Bools
    """Whether it is the first sample of its head."""

    def named(self, at: int) -> Named:
        """Return what identifies one sample."""
        of = self.heads[at].of
        seq, observed_ms = self.columns.node[at, :2].tolist()
        return Named(of.node, of.boot_id, seq, observed_ms, of.facts_revision, of.pods_revision)

    def without(self, gone: Callable[[N], bool]) -> Block[N]:
        """Drop the samples of some nodes."""
        kept = np.array([not gone(head.node) for head in self.heads], np.bool_)
        places = np.nonzero(kept)[0].tolist()
        its = self.columns
        return Block(
            heads=[self.heads[at] for at in places],
            numbers=self.numbers[kept],
            values=[self.values[at] for at in places],
            quotas_us=[self.quotas_us[at] for at in places],
            newer=self.newer[kept],
            columns=Columns(its.node[kept], its.pods[np.repeat(kept, its.counts)], its.counts[kept]),
            met=self.met[kept],
        )

    @property
    def rows(self) -> Ints:
        """Return the windows row of each sample's node."""
        its: Ints = self.numbers[:, ROW]
        return its

    def figures(self) -> Floats:
        """Return the pods' figures; NaN: the pod has no control group."""
        values = self.columns.pods.astype(np.float64)
        values[values < 0] = np.nan
        return values


def waves(rows: Ints, most: int) -> list[Ints]:
    """Split samples into waves of places, ascending, in which each row occurs once; each row keeps its order."""
    order = np.argsort(rows, kind="stable")
    sorted_rows = rows[order]
    begins = np.concatenate([[True], sorted_rows[1:] != sorted_rows[:-1]])
    place = np.arange(len(rows))
    turns = np.empty(len(rows), np.int64)
    turns[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    found: list[Ints] = []
    for turn in range(int(turns.max()) + 1):
        its = np.nonzero(turns == turn)[0]
        found += [its[at : at + most] for at in range(0, len(its), most)]
    return found


def wave(heads: Sequence[Head[N]], rows: Ints, node: Ints, pods: Floats, counts: Ints, of_pods: Floats) -> Wave:
    """Return samples as input of ``Windows.merge_wave``.

    ``node``: int64 [n, 6]. ``pods``: float64 [N, 2]: of all their pods; NaN: the pod has no control group. ``of_pods``:
    float64 [n, 2]: their sums.
    """
    absent = np.isnan(pods[:, 0])
    uids: list[list[str]] = [head.uids for head in heads]
    if absent.any():
        ends = np.cumsum(counts)
        for at in np.unique(np.searchsorted(ends, np.nonzero(absent)[0], side="right")).tolist():
            there = ~absent[ends[at] - counts[at] : ends[at]]
            uids[at] = list(compress(heads[at].uids, there.tolist()))
            heads[at].settled = False
        pods, counts = pods[~absent], np.array([len(its) for its in uids])
    return Wave(
        nodes=[head.window for head in heads],
        rows=rows,
        ends_ms=node[:, 1],
        intervals_ms=node[:, 2],
        node=node[:, 3:5].astype(np.float64),
        uids=uids,
        pods=pods,
        counts=counts,
        of_pods=of_pods,
        listed=[head.pods for head in heads],
        groups=lambda at: heads[at].group,
        unsettled=[at for at, head in enumerate(heads) if not head.settled],
    )


def of_samples(pods: Floats, which: Ints, counts: Ints) -> Floats:
    """Return the figures of the pods of samples ``which``, float64 [k, 2]; ``pods``: float64 [N, 2]: of all samples."""
    its = counts[which]
    ends = np.cumsum(its)
    places = np.arange(ends[-1]) + np.repeat(np.cumsum(counts)[which] - ends, its)
    # Moving pairs as complex numbers takes a tenth of the time.
    found: Floats = pods.view(np.complex128).ravel().take(places).view(np.float64).reshape(-1, 2)
    return found
