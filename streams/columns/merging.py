"""Merges a block into its nodes' windows, wave by wave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from slacktide.streams.columns.block import Block, of_samples, sums, wave, waves
from slacktide.streams.columns.head import SPREAD_MS
from slacktide.streams.columns.segments import MINUTE_MS
from slacktide.streams.columns.windows import Windows

N = TypeVar("N")


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
