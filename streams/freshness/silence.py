"""Which of a worker's nodes are silent, and of which that may be published.

Time is the worker's ticks, one a second, and nothing else: so that a replay of the same ticks and records comes
to the same. Of a node it may be published when

* no record of it came to Kafka for ``SILENT_MS``, by ticks (``partition``: the clocks of nodes do not count);
* the worker has read all that stood in its partition after that time: its position has reached an end offset that
  was asked for after the tick by which the node is judged;
* the worker has not paused within one session timeout: after a pause it learns late of what others may do by now;
* not so many fell silent with it that the pipeline is to blame (``masses``).

A node that just came with its partition is waited for as long as any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from slacktide.schemas.tick import Reached, WorkerTick
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.freshness.masses import FALLEN_MIN, TOGETHER_MS, Quiet, frozen
from slacktide.streams.freshness.partition import Partition

TICK_MS = 1_000
SILENT_MS = 7_000
"""With the tick that a record waits for and the one by which all is read, a node is stale within 10 s."""
QUIET_MS = 4_000
"""Nodes this long silent count when it is asked how many fell silent: they do not all stop in one second."""
PAUSED_MS = 1_000
"""Beyond a second: a worker that did not tick for 2 s has paused."""
LOST_MS = 3_600_000
"""A node that is silent for an hour may have been invented: where nobody lists the nodes, it is forgotten."""
FROZEN_MIN_MS = 120_000
"""So is a frozen node that is silent for so long, and for longer than it was there: invented names freeze others no
longer than that."""
REPUBLISH_MS = 5_000
"""By default a silent node's figures are published again after this, as all latest state is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a tick comes to."""

    publish: Mapping[str, int]
    """Nodes to publish as stale, now or again now: for how many milliseconds each has been silent."""
    silent: int
    """How many nodes are published as stale."""
    frozen: frozenset[str]
    """Silent nodes of which nothing is published."""
    nodes: int
    """How many there are."""
    lost: Collection[tuple[int, str]] = ()
    """Partition and name of nodes that are forgotten where nobody lists the nodes."""
    stale: frozenset[str] = frozenset()
    """Nodes that are published as stale, and were found silent by this very tick."""

    @property
    def alarm(self) -> str:
        """What is wrong with the pipeline; "": nothing."""
        if not self.frozen:
            return ""
        return f"{len(self.frozen)} of {self.nodes} nodes fell silent together: their figures are frozen as they were"


class Silence:
    """Takes what a worker holds, reads and ticks."""

    def __init__(
        self, *, session_timeout_ms: int, silent_ms: int = SILENT_MS, republish_ms: int = REPUBLISH_MS
    ) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._republish_ms = republish_ms
        self._silent_ms = silent_ms
        self._quiet_ms = min(QUIET_MS, silent_ms)
        self._partitions: dict[int, Partition] = {}
        self._at_ms = 0
        self._mute_until_ms = 0
        self._published_ms: dict[str, int] = {}
        self._frozen: frozenset[str] = frozenset()

    def hold(self, partitions: Iterable[int]) -> None:
        """These are the worker's partitions now; nodes of others are forgotten, those of new ones not known yet."""
        self._partitions = {number: self._partitions.get(number) or Partition() for number in partitions}

    def sampled(self, partition: int, offsets: Mapping[str, int], topic: str = SAMPLE.name) -> None:
        """Records of nodes were read in a topic: the offset of each one's newest."""
        if partition in self._partitions:
            self._partitions[partition].sampled(offsets, topic)

    def known(self, partition: int, silent_ms: Mapping[str, int]) -> None:
        """Nodes are there of which nothing was read; how long each was published as silent already, else 0."""
        if partition in self._partitions:
            self._partitions[partition].known(silent_ms)

    def gone(self, partition: int, node: str) -> None:
        """The node is removed: not silent, but gone."""
        if partition in self._partitions:
            self._partitions[partition].gone(node)

    def nodes(self, partition: int) -> frozenset[str]:
        """Those of a partition that are waited for."""
        held = self._partitions.get(partition)
        return frozenset() if held is None else held.nodes()

    def tick(self, tick: WorkerTick) -> Verdict:
        """Judge by the tick before this one, after which the ends in this one were asked for."""
        judged_ms, self._at_ms = self._at_ms, self._at_ms + TICK_MS + tick.paused_ms
        if tick.paused_ms > PAUSED_MS:
            self._mute_until_ms = self._at_ms + self._session_timeout_ms
        reached: dict[int, list[Reached]] = defaultdict(list)
        for one in tick.partitions:
            reached[one.partition].append(one)
        read: list[int] = []
        for number, partition in self._partitions.items():
            its = reached[number]
            partition.tick(self._at_ms, ends={one.topic: one.end for one in its}, fetched_ms=judged_ms)
            if its and all(one.end is not None and one.position >= one.end for one in its):
                read.append(number)
        if self._at_ms >= self._mute_until_ms:
            return self._judged(read, judged_ms)
        return self._verdict({})

    def _judged(self, read: Collection[int], judged_ms: int) -> Verdict:
        """Of nodes in partitions that are not read to the end nothing new is known: with them all stays as it was."""
        quiet = {
            node: (number, age_ms)
            for number in read
            for node, age_ms in self._partitions[number].quiet_ms(judged_ms, self._quiet_ms)
        }
        lost = [(number, node) for node, (number, age_ms) in quiet.items() if age_ms >= self._lost_ms(number, node)]
        self._freeze(read, quiet)
        back = [node for node in self._published_ms if self._held(node, read) and not self._is_silent(quiet.get(node))]
        for node in back:
            del self._published_ms[node]
        publish: dict[str, int] = {}
        for node, (number, age_ms) in quiet.items():
            published_ms = self._published_ms.get(node)
            due = node not in self._frozen if published_ms is None else self._at_ms - published_ms >= self._republish_ms
            if due and age_ms >= self._silent_ms:
                self._published_ms[node] = self._at_ms
                publish[node] = age_ms + self._partitions[number].silent_before_ms.get(node, 0)
        return self._verdict(publish, lost, stale=frozenset(self._published_ms.keys() & quiet.keys()))

    def _lost_ms(self, partition: int, node: str) -> int:
        if node not in self._frozen:
            return LOST_MS
        return min(LOST_MS, max(FROZEN_MIN_MS, self._partitions[partition].alive_ms(node)))

    def _is_silent(self, quiet: tuple[int, int] | None) -> bool:
        return quiet is not None and quiet[1] >= self._silent_ms

    def _freeze(self, read: Collection[int], quiet: Mapping[str, tuple[int, int]]) -> None:
        """Look at all nodes only where enough of them are quiet: mostly none is."""
        lately_ms = self._silent_ms + TOGETHER_MS
        fallen = {node for node, (_, age_ms) in quiet.items() if age_ms < lately_ms or node in self._frozen}
        unread = self._partitions.keys() - read
        still = frozenset(node for node in self._frozen if self._held(node, unread))
        if len(fallen) < FALLEN_MIN:
            self._frozen = still
            return
        self._frozen = still | frozen(
            {
                node: Quiet(partition=number, fallen=node in fallen)
                for number in read
                for node in self._partitions[number].sampled_ms
                if node in fallen or node not in quiet
            }
        )

    def _held(self, node: str, partitions: Iterable[int]) -> bool:
        return any(node in self._partitions[number].sampled_ms for number in partitions)

    def _verdict(
        self, publish: Mapping[str, int], lost: Collection[tuple[int, str]] = (), stale: frozenset[str] = frozenset()
    ) -> Verdict:
        self._published_ms = {
            node: at_ms for node, at_ms in self._published_ms.items() if self._held(node, self._partitions)
        }
        self._frozen = frozenset(node for node in self._frozen if self._held(node, self._partitions))
        # Nodes that were stale before the others fell silent count with them, and stay stale.
        return Verdict(
            publish=publish,
            silent=len(self._published_ms),
            frozen=self._frozen - self._published_ms.keys(),
            nodes=sum(len(partition.sampled_ms) for partition in self._partitions.values()),
            lost=lost,
            stale=stale,
        )
