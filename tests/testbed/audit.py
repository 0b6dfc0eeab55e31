"""What the log has of a node's agent since an instant: whether it is whole, and whether anybody was evicted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing
from itertools import pairwise
from typing import TypeVar

from slacktide.agents.kafka import read_topic
from slacktide.agents.node.acts import ends_or_stops
from slacktide.schemas.codec import decode
from slacktide.schemas.message import Message
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits, NodeSample
from slacktide.schemas.topics import BACKFILL, OUTCOME, SAMPLE, Topic

M = TypeVar("M", bound=Message)
Place = tuple[str, int]
"""A sample's boot and seq: both in the agent's own order."""
DONE = frozenset({"applied", "unchanged", "failed"})


def records(bootstrap: str, topic: Topic, kind: type[M], key: str | None = None) -> list[M]:
    """A topic's records, of one key if named; what was sent twice, once."""

    async def read() -> list[M]:
        async with aclosing(read_topic(bootstrap, topic.name, key=key)) as found:
            return [decode(value, kind) for value in {one.value: None async for one in found} if value is not None]

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
        twice = [act for act, times in Counter(_acts(told)).items() if times > 1]
        limits = [each for each in told if each.about_limit and each.result in DONE]
        torn = [(one, other) for one, other in pairwise(limits) if not _follow(one.after, other.before)]

        assert not twice, f"told twice: {twice}"
        assert not torn, f"something happened between them that nobody told: {torn}"
        assert not [each for each in told if each.result == "gap"], "the spool was full"

    def assert_nobody_was_evicted(self) -> None:
        """Nor asked to go, nor frozen: whoever it was, and whatever came of it."""
        assert not [each for each in self.outcomes() if ends_or_stops(each)]


def _acts(told: Iterable[NodeOutcome]) -> list[tuple[object, ...]]:
    """Which rule acted on what for which sample."""
    return [
        (each.boot_id, each.seq, each.rule, each.target, each.knob and each.knob.knob)
        for each in told
        if each.result in DONE
    ]


def _follow(after: Limits | None, before: Limits | None) -> bool:
    """None: the kernel did not say."""
    return after is None or before is None or after.be_cfs_quota_us == before.be_cfs_quota_us
