"""Which nodes a worker's heartbeats cover, and how often it publishes figures that did not change."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.codec import decode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.heartbeat import heartbeat_of
from slacktide.schemas.topics import DEAD_LETTER, METRIC
from slacktide.streams.columns import figures
from slacktide.streams.columns.lines import MarksError
from slacktide.streams.records import FIGURES, Out
from slacktide.streams.worker import Worker
from slacktide.streams.worker.published import COVERED_MS, Covering
from testbed.samples import BOOT, START_MS, inventory_record, keyframe, policy_record, record_of
from testbed.scenarios import run, scenarios

PARTITION = 3
SCORE_MADE = "slacktide.streams.worker.publishing.node_score"


class Covered:
    """A worker that owns a partition."""

    def __init__(self, republish_ms: int = 5_000) -> None:
        self.worker = Worker("w", republish_ms=republish_ms)
        self.worker.policy(policy_record())
        self._outs: list[Out] = []

    def take(self, seq: int, node: str = "node-1", **changes: Any) -> list[str]:
        """A sample with pods and facts: what is written; of a dead letter the reason."""
        record = record_of(keyframe(seq, node, **changes), partition=PARTITION)
        dated = msgspec.structs.replace(record, timestamp_ms=START_MS + seq * 1_000)
        self._outs = self.worker.samples([dated], START_MS + seq * 1_000)
        letters = [decode(out.value, DeadLetter).reason for out in self._outs if out.topic == DEAD_LETTER.name]
        return letters or [out.topic for out in self._outs]

    def fails(self, seq: int) -> list[str]:
        """As a sample whose figures cannot be made."""
        with pytest.MonkeyPatch.context() as broken:
            broken.setattr(figures, "publish", _refuse)
            broken.setattr(SCORE_MADE, lambda *_, **__: 1 // 0)
            self.take(seq)
        return [out.topic for out in self._outs]

    def refused(self, topic: str) -> None:
        """Of the last sample's."""
        [out] = [out for out in self._outs if out.topic == topic]
        self.worker.refused(out, "too large", START_MS)

    def lives(self, first: int, last: int, *boots: str) -> list[Any]:
        """How often it is published while it sends a sample a second, by each boot; and what was covered meanwhile."""
        published, meanwhile = 0, []
        for seq in range(first, last):
            for boot in boots or [BOOT]:
                published += METRIC.name in self.take(seq, boot_id=boot)
            self.worker.covering.tick(1_000)
            meanwhile.append(self.covered())
        return [published, sorted({*map(tuple, meanwhile)}), self.covered()]

    def heartbeats(self, *stale: str) -> list[Any]:
        outs = self.worker.heartbeats([PARTITION], 7, frozenset(stale), ticked_ms=5, now_ms=START_MS)
        return [[out.topic, out.partition, out.key.decode(), out.value, heartbeat_of(out.headers)] for out in outs]

    def covered(self, *stale: str) -> list[str]:
        nodes = [beat.nodes for *_, beat in self.heartbeats(*stale)]
        assert nodes == [nodes[0]] * len(FIGURES), "the same in each topic"
        return nodes[0]

    def tick(self, passed_ms: int) -> None:
        self.worker.covering.tick(passed_ms)

    def silent(self, silent_ms: int) -> list[str]:
        return [out.topic for out in self.worker.silent({"node-1": silent_ms})]

    def hold_back(self) -> None:
        self.worker.hold_back(PARTITION)

    def publish(self) -> None:
        self.worker.publish(PARTITION)

    def forget(self) -> None:
        self.worker.forget(PARTITION)

    def removed(self) -> list[str]:
        return [out.topic for out in self.worker.inventory(inventory_record(None, partition=PARTITION))]


def _refuse(*_: object) -> list[Any]:
    raise MarksError("left to the rules")


SECONDS = st.lists(st.tuples(st.booleans(), st.integers(1, 8)), max_size=30)


@given(SECONDS)
def test_whatever_happens_a_node_is_covered_while_it_was_heard_within_4_seconds_pauses_included(seconds) -> None:
    covering, at_s, received_s = Covering(), 0, 0
    covering.published(0, "a")
    for sampled, passed_s in seconds:
        covering.tick(passed_s * 1_000)
        at_s += passed_s
        if sampled:
            covering.sampled([(0, "a"), (0, "never published"), (1, "a")])
            received_s = at_s
        assert covering.covered(0, ()) == (["a"] if (at_s - received_s) * 1_000 < COVERED_MS else [])
        assert covering.covered(0, {"a", "never published"}) == ["a"]
        assert covering.covered(1, {"a"}) == []


@scenarios("covering")
def test_covering(case: dict[str, Any]) -> None:
    run(case, Covered)
