"""Who a worker's session waits for: invented names hide no node that really fell silent."""

import msgspec
import pytest

from slacktide.schemas.connection import Cluster
from slacktide.schemas.heartbeat import is_heartbeat
from slacktide.schemas.inventory import NodeInventory, revision_of
from slacktide.schemas.tick import Reached, WorkerTick
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.engine.ticking import RECALL_TICKS, Ticking
from slacktide.streams.freshness.silence import FROZEN_MIN_MS, Verdict
from slacktide.streams.records import Out, Place, Record
from slacktide.streams.worker import Worker
from testbed.samples import FACTS, START_MS, SUPPRESS, inventory_record, keyframe, policy_record, record_of

REAL = [f"node-{n}" for n in range(100)]
INVENTED = [f"invented-{n}" for n in range(13)]


class Second:
    """A worker and the part of its session that ticks, without a broker."""

    def __init__(self, source: str) -> None:
        self.worker = Worker("w")
        self.worker.policy(policy_record(msgspec.structs.replace(SUPPRESS, node_source=source)))
        for node in REAL if source == "inventory" else ():
            facts = msgspec.structs.replace(FACTS, name=node)
            self.worker.inventory(
                inventory_record(NodeInventory(node=node, revision=revision_of(facts), facts=facts), node)
            )
        self.ticking = Ticking(
            self.worker,
            bootstrap=Cluster(""),
            group="",
            session_timeout_ms=6_000,
            now_ms=lambda: START_MS,
            write=self._write,
        )
        self.ticking.hold(frozenset({Place(SAMPLE.name, 0)}))
        self.offset = self.number = 0
        self._ended = 0
        self.written: list[Out] = []

    async def _write(self, outs: list[Out]) -> None:
        self.written = outs

    async def beats(self) -> set[int | None]:
        """Tick; to which partitions a heartbeat goes."""
        await self.ticking._tick(paused_ms=0)
        self.ticking._recall()
        return {out.partition for out in self.written if is_heartbeat(out.key)}

    def tick(self, nodes: list[str]) -> Verdict:
        """A second in which these send a sample, all of which is read."""
        self.number += 1
        records: list[Record] = []
        for node in nodes:
            self.offset += 1
            said = record_of(keyframe(self.number, node), offset=self.offset)
            records.append(msgspec.structs.replace(said, timestamp_ms=START_MS + self.number * 1_000))
        if records:
            outs = self.worker.samples(records, records[-1].timestamp_ms)
            self.ticking.answered(Place(SAMPLE.name, 0), records, {out.key for out in outs})
        reached = Reached(partition=0, position=self.offset + 1, end=self._ended)
        self._ended = self.offset + 1
        self.ticking._forget()
        return self.ticking._silence.tick(WorkerTick(worker="w", number=self.number, ticked_ms=0, partitions=[reached]))


@pytest.fixture
def listed() -> Second:
    return Second("inventory")


def test_13_invented_names_beside_100_nodes_freeze_nothing(listed: Second) -> None:
    """They sent once; then a real node falls silent, and is said to be stale."""
    listed.tick([*REAL, *INVENTED])
    verdicts = [listed.tick(REAL) for _ in range(30)]
    assert {verdict.nodes for verdict in verdicts} == {100}
    assert not any(verdict.frozen for verdict in verdicts)

    said = [listed.tick(REAL[1:]).publish for _ in range(10)]
    assert [list(one) for one in said if one] == [["node-0"]]


def test_a_real_mass_still_freezes(listed: Second) -> None:
    listed.tick(REAL)
    verdicts = [listed.tick(REAL[13:]) for _ in range(12)]

    assert verdicts[-1].frozen == frozenset(REAL[:13])
    assert all(not verdict.publish for verdict in verdicts)


def test_a_node_that_is_removed_is_not_waited_for_although_its_samples_go_on(listed: Second) -> None:
    listed.tick(REAL)
    removed = inventory_record(None, "node-0")
    listed.worker.inventory(removed)
    listed.ticking.inventory(removed)

    assert listed.tick(REAL).nodes == 99
    assert [listed.tick(REAL[1:]).publish for _ in range(12)] == [{}] * 12


def test_where_nobody_lists_the_nodes_those_that_are_lost_are_forgotten() -> None:
    open_ = Second("open")
    open_.tick([*REAL[:20], *INVENTED])
    for _ in range(30):
        frozen = open_.tick(REAL[:20]).frozen
    assert frozen == frozenset(INVENTED), "so many look like a broken pipeline"

    for _ in range(FROZEN_MIN_MS // 1_000):
        reached = Reached(partition=0, position=open_.offset + 1, end=open_.offset + 1)
        open_.ticking._silence.sampled(0, dict.fromkeys(REAL[:20], open_.offset + 1))
        verdict = open_.ticking._silence.tick(WorkerTick(worker="w", number=1, ticked_ms=0, partitions=[reached]))
        for partition, node in verdict.lost:
            open_.worker.lost(partition, node)
        open_.ticking._forget()

    verdict = open_.tick(REAL[:20])
    assert (len(open_.worker.held), verdict.nodes, verdict.frozen) == (20, 20, frozenset())


async def test_a_heartbeat_goes_where_nodes_are_and_ends_the_last_owners_for_five_seconds(listed: Second) -> None:
    named = inventory_record(NodeInventory(node="elsewhere", revision="r", facts=FACTS), "elsewhere")
    listed.ticking.inventory(msgspec.structs.replace(named, partition=2))
    listed.ticking.hold(frozenset(Place(SAMPLE.name, partition) for partition in range(4)))
    listed.tick(REAL[:1])

    assert [await listed.beats() for _ in range(RECALL_TICKS)] == [{0, 1, 2, 3}] * RECALL_TICKS
    assert await listed.beats() == {0, 2}
    listed.ticking.inventory(msgspec.structs.replace(named, partition=2, value=None))
    assert await listed.beats() == {0}
