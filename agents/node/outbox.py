"""What waits to be sent, in memory and bounded: the newest sample, and those that an outage held back."""

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
"""Ten minutes of seconds, or what a node with very many pods sends in less: the oldest go first."""


class Offered(NamedTuple):
    """A sample with the facts and the pod list that it names."""

    sample: NodeSample
    facts: NodeFacts
    pods: Sequence[Pod]

    @property
    def carries(self) -> bool:
        """Whether facts or pods travel in it."""
        return self.sample.facts is not None or self.sample.pods is not None

    def keyframe(self) -> Offered:
        """The same as a keyframe."""
        return self._replace(sample=replace(self.sample, facts=self.facts, pods=list(self.pods)))


class Newest:
    """Holds one sample: the newest that was not sent. A list that an older one carried goes with it."""

    def __init__(self) -> None:
        self._sample: Offered | None = None
        self._there = asyncio.Event()
        self._owed = False
        """Kafka may lack what the next sample names."""

    def put(self, sample: Offered) -> Offered | None:
        """Hold this one; the older one, if any, whose place it takes."""
        before, self._sample = self._sample, sample
        self._owed = self._owed or (before is not None and before.carries)
        self._there.set()
        return before

    def put_back(self, sample: Offered) -> Offered | None:
        """It was not sent after all; it again, if a newer one is here."""
        if self._sample is None:
            return self.put(sample)
        self._owed = self._owed or sample.carries
        return sample

    def owe_keyframe(self) -> None:
        """Whoever reads may not know what samples name: the next one is a keyframe."""
        self._owed = True

    async def wait(self) -> None:
        """Until there is one."""
        await self._there.wait()

    def take(self) -> Offered:
        """Take it out; as a keyframe, where one is owed."""
        sample, self._sample = self._sample, None
        assert sample is not None, "nothing was put"
        owed, self._owed = self._owed, False
        self._there.clear()
        return sample.keyframe() if owed else sample


class Backlog:
    """Samples that the log did not get while they were the newest, encoded, by seq; of too many the oldest go."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Out]] = []
        self._bytes = 0
        self._there = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, sample: NodeSample) -> int:
        """Keep one; how many are given up for it."""
        out = of_history(sample)
        insort(self._waiting, (sample.seq, out), key=itemgetter(0))  # one that failed comes after its successors
        self._bytes += _size(out)
        given_up = 0
        while len(self._waiting) > BACKLOG_SAMPLES_MAX or self._bytes > BACKLOG_BYTES_MAX:
            self._bytes -= _size(self._waiting.pop(0)[1])
            given_up += 1
        self._there.set()
        return given_up

    async def wait(self) -> None:
        """Until there is one."""
        await self._there.wait()

    def some(self, count: int) -> list[Out]:
        """The oldest, so many at most."""
        return [out for _, out in self._waiting[:count]]

    def sent(self, outs: list[Out]) -> None:
        """The log has these; some may have been given up meanwhile."""
        for out in outs:
            if self._waiting and self._waiting[0][1] is out:
                self._bytes -= _size(self._waiting.pop(0)[1])
        if not self._waiting:
            self._there.clear()


def _size(out: Out) -> int:
    return len(out.value or b"")
