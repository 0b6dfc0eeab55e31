"""Decides which of a worker's nodes are silent, and which of them to report stale.

Time is the worker's tick, once per second, so that a replay gives the same result. A node is reported stale when

* no record of it reached Kafka for ``SILENT_MS``, by ticks and end offsets (node clocks do not matter);
* the worker has read its partition up to an end offset that was fetched after that tick;
* the worker has not paused within one session timeout: it may have lost the partition meanwhile;
* the pipeline is not broken: too many nodes did not fall silent together (see ``masses``).

After a takeover a node gets the full time.
"""

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from slacktide.schemas.tick import WorkerTick

ENDS_KEPT = 64
"""The number of ticks. A record that is read later has this age."""


class _Ends:
    """End offsets of a partition, with the tick that preceded each fetch."""

    def __init__(self) -> None:
        self._ends: deque[int] = deque(maxlen=ENDS_KEPT)
        self._fetched_ms: deque[int] = deque(maxlen=ENDS_KEPT)

    def add(self, end: int, fetched_ms: int) -> None:
        if self._ends and end < self._ends[-1]:  # the topic was probably recreated
            self._ends.clear()
            self._fetched_ms.clear()
        if not self._ends or end > self._ends[-1]:
            self._ends.append(end)
            self._fetched_ms.append(fetched_ms)

    def asked_ms(self, offset: int) -> int | None:
        """Return when the first end offset beyond a record was fetched; None: unknown."""
        ends = self._ends
        if not ends or offset >= ends[-1]:
            return None
        return self._fetched_ms[0 if offset < ends[0] else bisect_right(ends, offset)]


class Partition:
    """Times are milliseconds of the worker's tick clock."""

    def __init__(self) -> None:
        self.sampled_ms: dict[str, int] = {}
        """The first tick at which a node's newest record was known to be in Kafka, by node."""
        self._since_ms: dict[str, int] = {}
        """The time at which a node's first record was read, by node."""
        self.silent_before_ms: dict[str, int] = {}
        """The duration of a node's silence before the takeover, as the last owner published, by node."""
        self._held_ms: int | None = None
        """The first tick with the partition assigned."""
        self._fresh: set[str] = set()
        self._ends = _Ends()

    def sampled(self, offsets: Mapping[str, int]) -> None:
        """Store the offset of each node's newest record."""
        for node, offset in offsets.items():
            self.silent_before_ms.pop(node, None)
            fetched_ms = self._ends.asked_ms(offset)
            if fetched_ms is None:  # appended after the last known end offset
                self._fresh.add(node)
            else:
                self.sampled_ms[node] = max(fetched_ms, self.sampled_ms.get(node, 0))
                self._since_ms.setdefault(node, self.sampled_ms[node])

    def known(self, silent_ms: Mapping[str, int]) -> None:
        """Add nodes without a record. Their silence counts from the takeover."""
        for node, before_ms in silent_ms.items():
            if node in self.sampled_ms or node in self._fresh:
                continue
            self.silent_before_ms[node] = before_ms
            if self._held_ms is None:
                self._fresh.add(node)
            else:
                self.sampled_ms[node] = self._held_ms

    def gone(self, node: str) -> None:
        """Forget a node."""
        self._fresh.discard(node)
        self.sampled_ms.pop(node, None)
        self._since_ms.pop(node, None)
        self.silent_before_ms.pop(node, None)

    def nodes(self) -> frozenset[str]:
        """Return all nodes of the partition."""
        return frozenset(self.sampled_ms) | self._fresh

    def tick(self, at_ms: int, *, end: int | None, fetched_ms: int) -> None:
        """Advance the clock to a tick; records read since the last one arrived by then.

        ``end``: the partition's end offset; None: unknown. ``fetched_ms``: the tick that preceded its fetch.
        """
        if self._held_ms is None:
            self._held_ms = at_ms
        for node in self._fresh:
            self.sampled_ms[node] = at_ms
            self._since_ms.setdefault(node, at_ms)
        self._fresh.clear()
        if end is not None:
            self._ends.add(end, fetched_ms)

    def quiet_ms(self, at_ms: int, longest_ms: int) -> Iterable[tuple[str, int]]:
        """Return the nodes that were silent for at least ``longest_ms`` at ``at_ms``, with the duration."""
        return [
            (node, at_ms - sampled_ms)
            for node, sampled_ms in self.sampled_ms.items()
            if at_ms - sampled_ms >= longest_ms
        ]

    def alive_ms(self, node: str) -> int:
        """Return the time from a node's first to its newest record while the partition was assigned."""
        sampled_ms = self.sampled_ms[node]
        return sampled_ms - self._since_ms.get(node, sampled_ms)


TICK_MS = 1_000
SILENT_MS = 7_000
"""Plus one tick for the record and one until all is read: a node is stale within 10 s."""
QUIET_MS = 4_000
"""Nodes that are silent this long count as fallen, since an outage does not stop all nodes in the same second."""
PAUSED_MS = 1_000
"""Beyond a second: a worker without a tick for 2 s has paused."""
LOST_MS = 3_600_000
"""Without an inventory, a node that is silent for an hour is forgotten. Its name may be forged."""
FROZEN_MIN_MS = 120_000
"""The limit for a frozen node that is silent for longer than it was alive. It bounds the effect of forged names."""
REPUBLISH_MS = 5_000
"""Default interval at which a silent node's figures are republished."""
TOGETHER_MS = 30_000
"""Nodes fell silent together if their silence began within this time."""
FALLEN_MIN = 5
"""Fewer silent nodes are never an outage."""
SHARE = 10
"""More than one node in this many is an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of a tick."""

    publish: Mapping[str, int]
    """Nodes to publish as stale, with the milliseconds of their silence."""
    silent: int
    """Number of nodes published as stale."""
    frozen: frozenset[str]
    """Silent nodes that are not published as stale."""
    nodes: int
    """Number of nodes."""
    lost: Collection[tuple[int, str]] = ()
    """Partition and name of forgotten nodes."""
    stale: frozenset[str] = frozenset()
    """Nodes found silent in this tick and published as stale."""

    @property
    def alarm(self) -> str:
        """Return the alarm about the pipeline; "": none."""
        if not self.frozen:
            return ""
        return f"{len(self.frozen)} of {self.nodes} nodes fell silent together: their figures are frozen as they were"


class Silence:
    """Finds silent nodes among those of a worker."""

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
        """Set the assigned partitions; nodes of revoked ones are forgotten."""
        self._partitions = {number: self._partitions.get(number) or Partition() for number in partitions}

    def sampled(self, partition: int, offsets: Mapping[str, int]) -> None:
        """Store the offset of each node's newest record."""
        if partition in self._partitions:
            self._partitions[partition].sampled(offsets)

    def known(self, partition: int, silent_ms: Mapping[str, int]) -> None:
        """Add nodes without a record, with the silence that was already published, else 0."""
        if partition in self._partitions:
            self._partitions[partition].known(silent_ms)

    def gone(self, partition: int, node: str) -> None:
        """Remove a node."""
        if partition in self._partitions:
            self._partitions[partition].gone(node)

    def nodes(self, partition: int) -> frozenset[str]:
        """Return all nodes of a partition."""
        held = self._partitions.get(partition)
        return frozenset() if held is None else held.nodes()

    def tick(self, tick: WorkerTick) -> Verdict:
        """Evaluate the previous tick: the end offsets of this tick were fetched after it."""
        judged_ms, self._at_ms = self._at_ms, self._at_ms + TICK_MS + tick.paused_ms
        if tick.paused_ms > PAUSED_MS:
            self._mute_until_ms = self._at_ms + self._session_timeout_ms
        reached = {one.partition: one for one in tick.partitions}
        read: list[int] = []
        for number, partition in self._partitions.items():
            its = reached.get(number)
            end = None if its is None else its.end
            partition.tick(self._at_ms, end=end, fetched_ms=judged_ms)
            if its is not None and end is not None and its.position >= end:
                read.append(number)
        if self._at_ms >= self._mute_until_ms:
            return self._judged(read, judged_ms)
        return self._verdict({})

    def _judged(self, read: Collection[int], judged_ms: int) -> Verdict:
        """Evaluate the nodes. In partitions that are not read to the end, nodes keep their state."""
        quiet = {
            node: (number, age_ms)
            for number in read
            for node, age_ms in self._partitions[number].quiet_ms(judged_ms, self._quiet_ms)
        }
        lost = []
        for node, (number, age_ms) in quiet.items():
            alive_ms = self._partitions[number].alive_ms(node) if node in self._frozen else LOST_MS
            if age_ms >= min(LOST_MS, max(FROZEN_MIN_MS, alive_ms)):
                lost.append((number, node))
        self._freeze(read, quiet)
        back = [
            node
            for node in self._published_ms
            if self._held(node, read) and quiet.get(node, (0, -1))[1] < self._silent_ms
        ]
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

    def _freeze(self, read: Collection[int], quiet: Mapping[str, tuple[int, int]]) -> None:
        """Check all nodes, only if enough of them are quiet."""
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
        # Nodes that were stale before the outage count with it, and stay stale.
        return Verdict(
            publish=publish,
            silent=len(self._published_ms),
            frozen=self._frozen - self._published_ms.keys(),
            nodes=sum(len(partition.sampled_ms) for partition in self._partitions.values()),
            lost=lost,
            stale=stale,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """The silence of one node."""

    partition: int
    fallen: bool
    """The node fell silent recently, or has been frozen since."""


def frozen(nodes: Mapping[str, Quiet]) -> frozenset[str]:
    """Return the nodes that must not be reported stale, since the pipeline is broken.

    It is broken if at least five nodes fell silent: more than a tenth of all nodes, or all nodes of a partition.
    ``nodes``: by name, without those that have been silent for long.
    """
    fallen = [name for name, node in nodes.items() if node.fallen]
    if len(fallen) < FALLEN_MIN:
        return frozenset()
    if len(fallen) * SHARE > len(nodes):
        return frozenset(fallen)
    of_partition = Counter(node.partition for node in nodes.values())
    fallen_of = Counter(nodes[name].partition for name in fallen)
    whole = {number for number, count in fallen_of.items() if FALLEN_MIN <= count == of_partition[number]}
    return frozenset(name for name in fallen if nodes[name].partition in whole)
