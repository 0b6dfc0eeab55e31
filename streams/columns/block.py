"""The samples of turns as columns, joined and merged into windows.

A node may occur several times, always with the same pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from slacktide.schemas.topics import SAMPLE
from slacktide.streams.columns.head import ROW, SPREAD_MS, Head
from slacktide.streams.columns.numbers import Columns, sums
from slacktide.streams.columns.rings import Bools, Floats, Ints, chained
from slacktide.streams.columns.screen import Samples
from slacktide.streams.columns.segments import MINUTE_MS
from slacktide.streams.columns.windows import Wave, Windows
from slacktide.streams.records import Record

N = TypeVar("N")


def samples(its: Columns, heads: Sequence[Head[N]], quotas_us: Ints, gates: Ints) -> Samples:
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
        gates=gates,
        observed_ms=its.node[:, 1],
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
    """int64 [n, 16]"""
    values: Sequence[bytes]
    """Of the records. Only their heads and numbers have been decoded: all else may be invalid."""
    offsets: Sequence[int]
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

    def record(self, at: int) -> Record:
        """Return the record of one sample, without its headers."""
        head = self.heads[at]
        return Record(
            topic=SAMPLE.name,
            partition=head.partition,
            offset=self.offsets[at],
            timestamp_ms=int(self.columns.node[at, 1]),
            key=head.of.node.encode(),
            value=self.values[at],
        )

    def without(self, gone: Callable[[N], bool]) -> Block[N]:
        """Drop the samples of some nodes."""
        kept, its = np.array([not gone(head.node) for head in self.heads], np.bool_), self.columns
        return Block(
            heads=list(compress(self.heads, kept)),
            numbers=self.numbers[kept],
            values=list(compress(self.values, kept)),
            offsets=list(compress(self.offsets, kept)),
            quotas_us=list(compress(self.quotas_us, kept)),
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


T = TypeVar("T")


def joined(answered: Iterable[T], most: int) -> Iterator[T]:
    """Join consecutive blocks up to ``most`` samples; each node's samples keep their order."""
    some: list[Any] = []  # blocks, therefore of T
    for one in answered:
        count = len(one.values) if isinstance(one, Block) else 0
        if some and (not count or sum(len(block.values) for block in some) + count > most):
            yield chained(some)
            some = []
        if count:
            some.append(one)
        else:
            yield one
    if some:
        yield chained(some)


class Merging(Generic[N]):
    """A block while it is merged. Samples are named by their place in it."""

    def __init__(self, windows: Windows, block: Block[N]) -> None:
        self.block = block
        self._windows = windows
        self._rows, self._pods = block.rows, block.figures()
        self._of_pods = sums(np.maximum(block.columns.pods, 0), block.columns.counts).astype(np.float64)

    def waves(self, most: int) -> list[list[int]]:
        """Split the samples into waves in which each node occurs once; each node keeps its order."""
        found: list[list[int]] = [its.tolist() for its in waves(self._rows, most)]
        return found

    def in_time(self, places: Sequence[int]) -> tuple[list[int], list[int]]:
        """Split a wave into samples newer than all before, and late ones."""
        block, marks = self.block, self._windows.marks
        its = np.array([at for at in places if not block.heads[at].window.gone], np.int64)
        observed = block.columns.node[:, 1]
        for at in its[block.met[its]].tolist():
            head = block.heads[at]
            self._windows.ready(head.window, int(observed[at]), head.window_ms, restarted=head.restarted)
        found = block.newer[its] & (observed[its] > marks.watermark_ms[self._rows[its]])
        return its[found].tolist(), its[~found].tolist()

    def merge(self, places: Sequence[int]) -> Sequence[int]:
        """Merge samples that are in time; no node twice."""
        taken, block = np.array(places, np.int64), self.block
        counts, heads = block.columns.counts, [block.heads[at] for at in places]
        figures = self._pods if len(taken) == len(counts) else of_samples(self._pods, taken, counts)
        its = wave(heads, self._rows[taken], block.columns.node[taken], figures, counts[taken], self._of_pods[taken])
        self._windows.merge_wave(its)
        for at in its.unsettled or ():
            head = heads[at]
            head.settled = head.window.listed is head.pods and len(head.window.uids) == len(head.uids)
        return places

    def over(self, places: Sequence[int]) -> list[int]:
        """Find the samples that complete a minute of their node."""
        if not places:
            return []
        its = np.array(places, np.int64)
        minutes = (self.block.columns.node[its, 1] - self.block.numbers[its, SPREAD_MS]) // MINUTE_MS
        found: list[int] = its[minutes > self._windows.marks.minute[self._rows[its]]].tolist()
        return found
