"""What is remembered of one node beside its figures: how far its time has come, and whose series are where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from slacktide.schemas.inventory import Pod
from slacktide.schemas.sample import NodeSample
from slacktide.streams.decisions.known_pods import PodName, known
from slacktide.streams.windows.rings import Floats, Ints
from slacktide.streams.windows.series import Series, slot_ms

OWN = 3
"""Series of a node: its use, its system's, and how much is covered by how many samples."""
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(slots=True, frozen=True, kw_only=True)
class Told:
    """What was last published of a node."""

    observed_ms: int
    revisions: tuple[str, str, str]
    """Of facts, pods and policy."""
    rows: Ints
    """Whose averages it was, as ``NodeWindow.all_rows``."""
    values: Floats
    """CPU and memory of each."""


@dataclass(slots=True)
class NodeWindow:
    """A node's place in the arrays. Its watermark is the end of the newest sample and never goes back."""

    node: str
    row: int
    """In the rings, and of what else is kept per node."""
    own: list[int]
    """In the series: of node, system and coverage."""
    window_ms: int = 0
    slot_ms: int = 1_000
    slots: int = 1
    slot: int = -1
    """The newest, by number."""
    watermark_ms: int = 0
    uids: list[str] = field(default_factory=list)
    """Of the newest sample, in its order."""
    cpu_milli: list[int | None] = field(default_factory=list)
    """What these used in it."""
    use_rows: Ints = field(default_factory=lambda: _NO_ROWS)
    """Their series."""
    rows: dict[str, int] = field(default_factory=dict)
    """Series of all that are kept, in order of uid."""
    all_rows: Ints = field(default_factory=lambda: _NO_ROWS)
    """The node's own series, then those of ``rows``."""
    listed: Sequence[Pod] | None = None
    """The pod list that ``rows`` go by."""
    known: dict[str, PodName] = field(default_factory=dict)
    """Each kept pod that a list has named, as the last one named it."""
    best_effort: set[str] = field(default_factory=set)
    """Uids that were seen under the best-effort group."""
    names: list[PodName] | None = None
    """Of each in ``rows``; None: to be found anew."""
    told: Told | None = None

    def begin(self, window_ms: int, series: Series) -> None:
        """Begin the averages anew, over a window of this length; what is kept of pods stays."""
        self.window_ms, self.slot_ms = window_ms, slot_ms(window_ms)
        self.slots = max(1, -(-window_ms // self.slot_ms))
        self.slot = -1
        series.clear(self.all_rows)

    def follow(self, sample: NodeSample, uids: list[str], pods: Sequence[Pod] | None, series: Series) -> None:
        """Keep series of the pods that this sample or its pod list names, and of no others.

        A pod that only one of them names is kept: the two are read at different times. Until the other follows it
        counts by what is known of it, so that a pod come or gone makes no dip in what is sold.
        """
        named = known(pods or ()).names
        kept = named.keys() | set(uids)
        gone = [self.rows[uid] for uid in self.rows.keys() - kept]
        if gone:
            series.give_back(gone)
        come = [uid for uid in kept if uid not in self.rows]
        rows = self.rows | dict(zip(come, series.take(len(come)), strict=True))
        self.rows = {uid: rows[uid] for uid in sorted(kept)}
        self.known = {uid: pod for uid, pod in self.known.items() if uid in kept} | dict(named)
        same = {uid: uid for uid in self.rows}  # each name is in memory once
        self.best_effort &= kept
        self.best_effort.update(same[use.uid] for use in sample.pod_use if use.best_effort_group)
        self.uids, self.listed = [same[uid] for uid in uids], pods
        self.use_rows = _array(self.rows[uid] for uid in uids)
        if come or gone or len(self.all_rows) != OWN + len(self.rows):
            self.all_rows = _array([*self.own, *self.rows.values()])
        self.names = None

    def keep(self, uids: Iterable[str], series: Series) -> None:
        """Keep series of these pods beside those that are kept, until a sample comes."""
        come = sorted(set(uids) - self.rows.keys())
        rows = self.rows | dict(zip(come, series.take(len(come)), strict=True))
        self.rows = dict(sorted(rows.items()))
        self.all_rows = _array([*self.own, *self.rows.values()])


def _array(rows: Iterable[int]) -> Ints:
    return np.fromiter(rows, np.int64)
