"""A node's window in event time: what node, system and pods used on average, second by second.

The watermark is the end of the newest sample and never goes back; a sample at or before it is not
merged. Memory is bounded: a window has at most 60 slots, and no more pods than the newest sample and
its pod list name.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from slacktide.schemas.metric import Use
from slacktide.schemas.sample import NodeSample
from slacktide.streams.windows.series import Series

SLOT_MS = 1_000
SLOTS_MAX = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Averages:
    """Averages over the window, each over the time for which its figure is known."""

    covered_ms: int
    samples: int
    node: Use
    system: Use
    pods: dict[str, Use]


class _Thing:
    """CPU in millicores and memory in bytes of one thing."""

    __slots__ = ("cpu", "mem")

    def __init__(self, slots: int) -> None:
        self.cpu = Series(slots)
        self.mem = Series(slots)

    def add(self, slot: int, weight_ms: int, cpu_milli: int | None, mem_bytes: int | None) -> None:
        if cpu_milli is not None:
            self.cpu.add(slot, cpu_milli, weight_ms)
        if mem_bytes is not None:
            self.mem.add(slot, mem_bytes, weight_ms)

    def clear(self, slot: int) -> None:
        self.cpu.clear(slot)
        self.mem.clear(slot)

    def average(self) -> Use | None:
        """None unless both are known: a figure that is missing must not pass for 0."""
        cpu_milli, mem_bytes = self.cpu.average(), self.mem.average()
        if cpu_milli is None or mem_bytes is None:
            return None
        return Use(cpu_milli=cpu_milli, mem_bytes=mem_bytes)


class NodeWindow:
    """The last ``window_ms`` of one node, in slots of a second or, in long windows, a sixtieth of it."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self._slot_ms = max(SLOT_MS, -(-window_ms // SLOTS_MAX))
        self._slots = max(1, -(-window_ms // self._slot_ms))
        self.restart()

    def restart(self) -> None:
        """Forget everything: the node's clock was set back."""
        self._watermark_ms = 0
        self._newest = -1
        self._samples = [0] * self._slots
        self._covered = Series(self._slots)
        self._node, self._system = _Thing(self._slots), _Thing(self._slots)
        self._pods: dict[str, _Thing] = {}

    @property
    def watermark_ms(self) -> int:
        """Event time up to which the window is filled."""
        return self._watermark_ms

    def merge(self, sample: NodeSample, listed: AbstractSet[str]) -> bool:
        """Take in one sample, for the time since the one before it; False: it comes too late.

        Args:
            sample: covers ``interval_ms`` before ``observed_ms``, less what is covered already.
            listed: uids of the pod list: they are kept although this sample may lack them.

        """
        end_ms = sample.observed_ms
        if end_ms <= self._watermark_ms:
            return False
        begin_ms = max(end_ms - sample.interval_ms, self._watermark_ms, end_ms - self.window_ms)
        self._advance(end_ms)
        self._keep({use.uid for use in sample.pod_use} | listed)
        system_cpu_milli, system_mem_bytes = _system(sample)
        for slot, weight_ms in self._pieces(begin_ms, end_ms):
            self._covered.add(slot, 1, weight_ms)
            self._node.add(slot, weight_ms, sample.use.cpu_milli, sample.use.mem_bytes)
            self._system.add(slot, weight_ms, system_cpu_milli, system_mem_bytes)
            for use in sample.pod_use:
                self._pods[use.uid].add(slot, weight_ms, use.cpu_milli, use.mem_bytes)
        self._samples[self._newest % self._slots] += sample.interval_ms > 0
        return True

    def averages(self) -> Averages | None:
        """What is known of the window; None: nothing yet."""
        node, system = self._node.average(), self._system.average()
        if node is None or system is None:
            return None
        pods = ((uid, thing.average()) for uid, thing in self._pods.items())
        return Averages(
            # Slots may be a little longer together than the window.
            covered_ms=min(self.window_ms, self._covered.covered_ms()),
            samples=sum(self._samples),
            node=node,
            system=system,
            pods={uid: use for uid, use in pods if use is not None},
        )

    def _advance(self, end_ms: int) -> None:
        newest = (end_ms - 1) // self._slot_ms
        for number in range(max(self._newest + 1, newest - self._slots + 1), newest + 1):
            slot = number % self._slots
            self._samples[slot] = 0
            self._covered.clear(slot)
            for thing in (self._node, self._system, *self._pods.values()):
                thing.clear(slot)
        self._newest, self._watermark_ms = newest, end_ms

    def _keep(self, uids: AbstractSet[str]) -> None:
        for uid in self._pods.keys() - uids:
            del self._pods[uid]
        for uid in uids - self._pods.keys():
            self._pods[uid] = _Thing(self._slots)

    def _pieces(self, begin_ms: int, end_ms: int) -> Iterator[tuple[int, int]]:
        """Slots that lie in [begin, end), each with the time that it shares with it."""
        first = max(begin_ms // self._slot_ms, self._newest - self._slots + 1)
        for number in range(first, self._newest + 1):
            piece_ms = min(end_ms, (number + 1) * self._slot_ms) - max(begin_ms, number * self._slot_ms)
            if piece_ms > 0:
                yield number % self._slots, piece_ms


def _system(sample: NodeSample) -> tuple[int | None, int | None]:
    """CPU and memory that no pod accounts for, at this sample; None: the node's own figure is unknown."""
    cpu_milli, mem_bytes = sample.use.cpu_milli, sample.use.mem_bytes
    pods_milli = sum(use.cpu_milli or 0 for use in sample.pod_use)
    pods_bytes = sum(use.mem_bytes or 0 for use in sample.pod_use)
    return (
        None if cpu_milli is None else max(0, cpu_milli - pods_milli),
        None if mem_bytes is None else max(0, mem_bytes - pods_bytes),
    )
