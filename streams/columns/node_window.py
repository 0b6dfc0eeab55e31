"""The state of one node beside its figures: its time, and the rows of its series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np

from slacktide.schemas.inventory import Pod
from slacktide.streams.columns.rings import Ints, grown
from slacktide.streams.columns.series import Series, slot_ms
from slacktide.streams.decisions.known_pods import PodName, known

OWN = 3
"""Series of a node itself: its use, its system's, and coverage with number of samples."""
NEVER = -1
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(slots=True, frozen=True, kw_only=True)
class Published:
    """What was last published of a node."""

    observed_ms: int
    revisions: tuple[str, str, str, str, str]
    """Of facts, inventory, pods, policy and forecast."""
    rows: Ints
    """The rows that were averaged, as ``NodeWindow.all_rows``. ``Series.published`` has the averages."""


class Marks:
    """The time state of all nodes in int64 arrays, so that many nodes are compared at once."""

    def __init__(self, rows: int) -> None:
        self.window_ms = np.zeros(rows, np.int64)
        self.slot_ms = np.full(rows, 1_000)
        self.slots = np.ones(rows, np.int64)
        self.slot = np.full(rows, -1)
        self.watermark_ms = np.zeros(rows, np.int64)
        self.minute = np.zeros(rows, np.int64)
        """Of event time: the first minute without a published segment."""
        self.published_ms = np.full(rows, NEVER)
        """Event time of the last publication."""
        self.published_by = np.zeros(rows, np.int64)
        """Serial number of the head with the same inputs; 0: unknown."""
        self.held_ms = np.full(rows, NEVER)
        """The tick at which a sample last showed that the published figures hold."""
        self.series = np.full(rows, OWN)
        self.own = np.zeros((rows, OWN), np.int64)

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        for name, array in vars(self).items():
            setattr(self, name, grown(array, rows))

    def clear(self, row: int) -> None:
        """Reset a node's row."""
        self.slot[row], self.published_ms[row], self.held_ms[row] = -1, NEVER, NEVER
        self.watermark_ms[row] = self.minute[row] = self.published_by[row] = 0
        self.series[row] = OWN


class _Mark:
    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, window: _Marked, _: type) -> int:
        return int(getattr(window.marks, self._name)[window.row])

    def __set__(self, window: _Marked, value: int) -> None:
        getattr(window.marks, self._name)[window.row] = value


class _Marked:
    __slots__ = ()
    row: int
    marks: Marks
    window_ms = _Mark()
    slot_ms = _Mark()
    slots = _Mark()
    slot = _Mark()
    watermark_ms = _Mark()
    minute = _Mark()


@dataclass(slots=True)
class NodeWindow(_Marked):
    """A node's place in the arrays. Its watermark is the end of the newest sample and never goes back."""

    node: str
    row: int
    """In the rings and the other arrays per node."""
    marks: Marks
    own: list[int]
    uids: list[str] = field(default_factory=list)
    """Of the newest sample, in its order."""
    use_rows: Ints = field(default_factory=lambda: _NO_ROWS)
    """Series of the pods in ``uids``."""
    kept: tuple[str, ...] = ()
    """Uids of all pods whose series are kept, in order."""
    all_rows: Ints = field(default_factory=lambda: _NO_ROWS)
    """The node's own series, then those of ``kept``."""
    listed: Sequence[Pod] | None = None
    """The pod list that ``kept`` follows."""
    names: list[PodName] = field(default_factory=list)
    """Names of ``kept`` from the latest list; empty: no list had one."""
    gone: bool = False
    """Its row belongs to another node."""
    _published: Published | None = None

    @property
    def published(self) -> Published | None:
        """Return what was last published; None: nothing, or it must be published again."""
        return self._published

    @published.setter
    def published(self, published: Published | None) -> None:
        self._published = published
        self.marks.published_ms[self.row] = NEVER if published is None else published.observed_ms
        self.marks.published_by[self.row] = 0

    def begin(self, window_ms: int, series: Series) -> None:
        """Restart the averages with a window of this length; the pods' series are kept."""
        self.window_ms, self.slot_ms = window_ms, slot_ms(window_ms)
        self.slots = max(1, -(-window_ms // self.slot_ms))
        self.slot = -1
        series.clear(self.all_rows)

    @property
    def rows(self) -> dict[str, int]:
        """Return the series of ``kept``, by uid."""
        return dict(zip(self.kept, self.all_rows[OWN:].tolist(), strict=True))

    def follow(
        self, group: Callable[[], AbstractSet[str]], uids: list[str], pods: Sequence[Pod] | None, series: Series
    ) -> None:
        """Keep the series of the pods in a sample or its pod list, and drop others.

        ``group`` returns the pods in the best-effort group.

        A pod that only one of them names is kept, because the two are read at different times. So a pod that starts or
        ends causes no dip in the reclaimed resources.
        """
        listed, before = known(pods or ()), self.names
        by_uid = listed.by_uid
        rows = self._keep(by_uid.keys() | uids, series)
        if len(by_uid) == len(rows):
            self.names = [by_uid[uid].name for uid in self.kept]
        else:
            had, its_group = {name.uid: name for name in before}, group()
            self.names = [
                by_uid[uid].name if uid in by_uid else _renamed(had.get(uid), uid, best_effort=uid in its_group)
                for uid in self.kept
            ]
        if uids is not listed.uids:  # each uid is in memory once
            same = dict(zip(self.kept, self.kept, strict=True))
            uids = [same[uid] for uid in uids]
        self.uids, self.listed = uids, pods
        self.use_rows = np.array([rows[uid] for uid in uids], np.int64)

    def keep(self, uids: Iterable[str], series: Series) -> None:
        """Keep the series of more pods until the next sample."""
        self._keep({*self.kept, *uids}, series)
        before = {name.uid: name for name in self.names}
        self.names = [_renamed(before.get(uid), uid, best_effort=False) for uid in self.kept]

    def _keep(self, uids: AbstractSet[str], series: Series) -> dict[str, int]:
        """Keep the series of these pods only; return them."""
        rows, before = self.rows, set(self.kept)
        gone, come = before - uids, uids - before
        if gone or come:
            series.give_back([rows.pop(uid) for uid in gone])
            rows |= zip(come, series.take(len(come)), strict=True)
            self.kept = tuple(sorted(uids))
            self.all_rows = np.array([*self.own, *map(rows.__getitem__, self.kept)], np.int64)
            self.marks.series[self.row], self.marks.published_by[self.row] = len(self.all_rows), 0
        return rows


def _renamed(before: PodName | None, uid: str, *, best_effort: bool) -> PodName:
    """Name a pod that no list has; without an earlier name, its group determines class and QoS."""
    if before is not None and (before.namespace or before.qos or not best_effort):
        return before
    return PodName(uid, "", "", *(("koord-batch", "BE") if best_effort else ("", "")))
