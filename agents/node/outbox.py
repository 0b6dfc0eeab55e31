"""Samples waiting to be sent, in bounded memory: the newest one, and the backlog of an outage."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from msgspec.structs import replace

from slacktide.agents.node.envelopes import of_history
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.sample import NodeSample
from slacktide.streams.records import Out

BACKLOG_SAMPLES_MAX = 600
BACKLOG_BYTES_MAX = 4 * 1024 * 1024
"""About ten minutes of samples, less with very many pods. The oldest are dropped first."""


class Offered(NamedTuple):
    """A sample with the facts and pods that it refers to."""

    sample: NodeSample
    facts: NodeFacts
    pods: Sequence[Pod]

    @property
    def carries(self) -> bool:
        """Whether it carries facts or pods."""
        return self.sample.facts is not None or self.sample.pods is not None

    def keyframe(self) -> Offered:
        """Return the same sample as a keyframe."""
        return self._replace(sample=replace(self.sample, facts=self.facts, pods=list(self.pods)))


class Newest:
    """Holds the newest unsent sample. It also carries the pods and facts of an unsent older one."""

    def __init__(self) -> None:
        self._sample: Offered | None = None
        self._there = asyncio.Event()
        self._owed = False
        """Whether Kafka may lack facts or pods that the next sample refers to."""

    def put(self, sample: Offered) -> Offered | None:
        """Hold this sample. Return the older one that it replaces."""
        before, self._sample = self._sample, sample
        self._owed = self._owed or (before is not None and before.carries)
        self._there.set()
        return before

    def put_back(self, sample: Offered) -> Offered | None:
        """Put back an unsent sample. Return it if a newer one is held."""
        if self._sample is None:
            return self.put(sample)
        self._owed = self._owed or sample.carries
        return sample

    def owe_keyframe(self) -> None:
        """Make the next sample a keyframe, since readers may lack facts or pods."""
        self._owed = True

    async def wait(self) -> None:
        """Wait until there is a sample."""
        await self._there.wait()

    def take(self) -> Offered:
        """Take the sample out, as a keyframe if one is owed."""
        sample, self._sample = self._sample, None
        assert sample is not None, "nothing was put"
        owed, self._owed = self._owed, False
        self._there.clear()
        return sample.keyframe() if owed else sample


class Backlog:
    """Encoded samples that were not sent while they were the newest, by seq. The oldest are dropped if full."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Out]] = []
        self._bytes = 0
        self._there = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sample: NodeSample) -> int:
        """Add a sample. Return how many older ones are dropped."""
        out = of_history(sample)
        insort(self._waiting, (sample.seq, out), key=itemgetter(0))  # a failed sample is added after its successors
        self._bytes += _size(out)
        given_up = 0
        while len(self._waiting) > BACKLOG_SAMPLES_MAX or self._bytes > BACKLOG_BYTES_MAX:
            self._bytes -= _size(self._waiting.pop(0)[1])
            given_up += 1
        self._there.set()
        return given_up

    async def wait(self) -> None:
        """Wait until there is a sample."""
        await self._there.wait()

    def some(self, count: int) -> list[Out]:
        """Return the oldest ``count`` records."""
        return [out for _, out in self._waiting[:count]]

    def sent(self, outs: list[Out]) -> None:
        """Remove sent records. Some may have been dropped meanwhile."""
        for out in outs:
            if self._waiting and self._waiting[0][1] is out:
                self._bytes -= _size(self._waiting.pop(0)[1])
        if not self._waiting:
            self._there.clear()


def _size(out: Out) -> int:
    return len(out.value or b"")
