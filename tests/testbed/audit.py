"""What the log has of a node's agent since an instant: whether it is whole, and whether anybody was evicted."""

import asyncio
from contextlib import aclosing
from typing import TypeVar

from slacktide.agents.node.reporter import ends_or_stops
from slacktide.schemas.connection import Cluster
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import BACKFILL, OUTCOME, SAMPLE, Topic
from slacktide.streams.kafka import read_topic
from slacktide.streams.samples import SampleReader
from testbed.history.acts import done_twice
from testbed.history.limits import torn
from testbed.sampled import decoded

M = TypeVar("M", bound=Message)
Place = tuple[str, int]
"""A sample's boot and seq: both in the agent's own order."""


def records(bootstrap: str, topic: Topic, kind: type[M], key: str | None = None) -> list[M]:
    """A topic's records, of one key if named; what was sent twice, once."""

    async def read() -> list[M]:
        async with aclosing(read_topic(Cluster(bootstrap), topic.name, key=key)) as found:
            samples = SampleReader()
            once = {(one.key, one.value): one async for one in found if one.value is not None}
            return [decoded(one, kind, samples) for one in once.values()]

    return asyncio.run(read())


class Audit:
    """Begun now: what the agent sampled and did from here on, over its restarts."""

    def __init__(self, bootstrap: str, node: str) -> None:
        self._bootstrap, self._node = bootstrap, node
        self._begun: Place = ("", 0)
        self._begun = max(self._places())

    def samples(self) -> list[NodeSample]:
        """All, live or as history: each is in the log once it can be."""
        read = (records(self._bootstrap, topic, NodeSample, self._node) for topic in (SAMPLE, BACKFILL))
        return [each for told in read for each in told if (each.boot_id, each.seq) > self._begun]

    def _places(self) -> set[Place]:
        return {(each.boot_id, each.seq) for each in self.samples()}

    def outcomes(self) -> list[NodeOutcome]:
        """All, in the order of the acts."""
        told = records(self._bootstrap, OUTCOME, NodeOutcome, self._node)
        return [each for each in told if (each.boot_id, each.seq) > self._begun]

    def holes(self) -> list[Place]:
        """Samples that are not in the log although later ones of their boot are."""
        there, last = self._places(), dict[str, int]()
        for boot, seq in there:
            last[boot] = max(seq, last.get(boot, 0))
        first = dict.fromkeys(last, 1) | {self._begun[0]: self._begun[1] + 1}
        return [
            (boot, seq)
            for boot in sorted(last)
            for seq in range(first[boot], last[boot] + 1)
            if (boot, seq) not in there
        ]

    def assert_whole(self) -> None:
        """Each act is told once, and no act on the limit is missing: each found what the one before it had left."""
        told = self.outcomes()
        twice, gaps = done_twice(told), torn(told)

        assert not twice, f"told twice: {twice}"
        assert not gaps, f"something happened between them that nobody told: {gaps}"
        assert not [each for each in told if each.result == "gap"], "the spool was full"

    def assert_nobody_was_evicted(self) -> None:
        """Nor asked to go, nor frozen: whoever it was, and whatever came of it."""
        assert not [each for each in self.outcomes() if ends_or_stops(each)]
