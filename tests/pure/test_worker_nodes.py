"""Which nodes a worker keeps state for, and by what their resources are sold: forged samples among them."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Resources, revision_of
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.score import NodeScore
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, DEAD_LETTER, SCORE
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from testbed.samples import FACTS, GIB, START_MS, SUPPRESS, inventory_record, keyframe, policy_record, record_of, sample
from testbed.scenarios import run, scenarios

PIB = 2**50
LISTED: Policy = msgspec.structs.replace(SUPPRESS, node_source="inventory")
LOW, HIGH = "000000000001-0000000a", "000000000009-0000000b"
AT_MS = START_MS


def inventory_of(node: str = "node-1", **changes: Any) -> Record:
    facts = msgspec.structs.replace(FACTS, name=node, **changes)
    return inventory_record(NodeInventory(node=node, revision=revision_of(facts), facts=facts), node)


@pytest.fixture
def worker() -> Worker:
    """One that is told which nodes exist."""
    worker = Worker("w")
    assert worker.policy(policy_record(LISTED)) == []
    return worker


def give(worker: Worker, *samples: NodeSample, at_ms: int | None = None) -> list[Out]:
    """At the append times of their seqs."""
    records = [record_of(one) for one in samples]
    dated = [
        msgspec.structs.replace(record, timestamp_ms=at_ms or AT_MS + one.seq * 1_000)
        for record, one in zip(records, samples, strict=True)
    ]
    return worker.samples(dated, dated[-1].timestamp_ms)


def of(outs: list[Out], topic: str, kind: type) -> list[Any]:
    return [decode(out.value, kind) for out in outs if out.topic == topic]


def answers(outs: list[Out]) -> list[tuple[str, str]]:
    return [(one.answer, one.reason.partition(":")[0]) for one in of(outs, COMMAND.name, NodeCommand)]


HUGE = NodeFacts(
    name="node-1",
    capacity=Resources(cpu_milli=76_000, mem_bytes=PIB),
    allocatable=Resources(cpu_milli=76_000, mem_bytes=PIB),
)


def test_what_is_sold_goes_by_the_inventory_whatever_a_sample_claims(worker: Worker) -> None:
    """A sample that claims 1 PiB sells what the same node would sell without the claim, and names the inventory."""
    worker.inventory(inventory_of())
    honest = Worker("w")
    honest.policy(policy_record(LISTED))
    honest.inventory(inventory_of())
    forged = keyframe(1, facts=HUGE, facts_revision=revision_of(HUGE))

    [sold] = of(give(worker, forged), ALLOCATABLE.name, NodeAllocatable)
    [wanted] = of(give(honest, keyframe(1)), ALLOCATABLE.name, NodeAllocatable)

    assert 0 < sold.batch_mem_bytes < 16 * GIB
    assert msgspec.structs.replace(sold, facts_revision=wanted.facts_revision) == wanted
    assert sold.inventory_revision == decode(inventory_of().value, NodeInventory).revision
    assert sold.facts_revision == forged.facts_revision, "what the agent decided by is named as well"


def test_dead_letters_of_unknown_nodes_are_few(worker: Worker) -> None:
    outs = [out for n in range(200) for out in give(worker, keyframe(n + 1, node=f"invented-{n}"))]

    assert sum(out.topic == COMMAND.name for out in outs) == 200
    assert sum(out.topic == DEAD_LETTER.name for out in outs) == 4, "one a minute"


def test_a_restart_under_redelivery_loses_nothing(worker: Worker) -> None:
    """Samples of the old boot come again after the new one began, with the append times that they had."""
    worker.inventory(inventory_of())
    old = [keyframe(n, boot_id=LOW) for n in range(1, 30)]
    new = [keyframe(n, boot_id=HIGH) for n in range(31, 60)]
    outs = [give(worker, one) for one in (*old, *new, *old, *new, *old)]

    assert {answers(each)[0][0] for each in outs} == {"set"}
    assert worker.held.two_boots(AT_MS + 60_000) == []


@pytest.mark.exhaustive
def test_ten_thousand_invented_names_cost_no_memory() -> None:
    """Measured in a process of its own: where the inventory decides, and where an open worker is full."""
    program = """
import resource, sys
from pure.test_worker_nodes import *
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
worker = Worker("w", open_nodes_max=100)
worker.policy(policy_record(LISTED if sys.argv[1] == "inventory" else SUPPRESS))
for n in range(200):
    worker.inventory(inventory_of(f"node-{n}"))
    give(worker, keyframe(1, node=f"node-{n}"))
before = peak()
for n in range(10_000):
    for seq in (1, 2):
        give(worker, keyframe(seq, node=f"invented-{n}"))
print(peak() - before, len(worker.held))
"""
    for source, held in (("inventory", 200), ("open", 200)):
        said = subprocess.run(
            [sys.executable, "-c", program, source], capture_output=True, text=True, check=True, cwd="tests"
        ).stdout.split()
        assert (float(said[0]) < 30, int(said[1])) == (True, held), (source, said)


FORGED = {
    "huge": HUGE,
    "sells all": msgspec.structs.replace(
        FACTS, annotations={"node.koordinator.sh/colocation-strategy": '{"cpuReclaimThresholdPercent":100}'}
    ),
    "small": msgspec.structs.replace(FACTS, capacity=Resources(cpu_milli=1_000, mem_bytes=GIB)),
}


class Listing:
    """A worker, and what it writes of nodes by an inventory and by samples with facts of their own."""

    def __init__(self, *, is_open: bool = False, **of: Any) -> None:
        self._worker = Worker("w", **of)
        self._worker.policy(policy_record(SUPPRESS if is_open else LISTED))

    def lists(self, node: str = "node-1", facts: str = "") -> None:
        made = msgspec.structs.replace(FORGED[facts], name=node) if facts else msgspec.structs.replace(FACTS, name=node)
        told = NodeInventory(node=node, revision=revision_of(made), facts=made)
        self._worker.inventory(inventory_record(told, node))

    def removes(self, node: str = "node-1") -> list[str]:
        return [out.topic for out in self._worker.inventory(inventory_record(None, node))]

    def inventory_decides(self) -> None:
        self._worker.policy(policy_record(LISTED))

    def sample(self, seq: int, node: str = "node-1", facts: str = "", make: Any = keyframe, **of: Any) -> list[Any]:
        if facts:
            of |= {"facts": FORGED[facts], "facts_revision": revision_of(FORGED[facts])}
        if make is sample:
            of.pop("facts", None)
        found: list[Any] = []
        for out in give(self._worker, make(seq, node=node, **of)):
            if out.topic == COMMAND.name:
                command = decode(out.value, NodeCommand)
                found.append([command.answer, command.reason, *(hold.terms["allowed_milli"] for hold in command.hold)])
            elif out.topic == ALLOCATABLE.name:
                sold = decode(out.value, NodeAllocatable)
                found.append([sold.batch_cpu_milli, sold.batch_mem_bytes, sold.inventory_revision, sold.boot_id])
                found[-1].append(sold.observed_ms)
            elif out.topic == SCORE.name:
                score = decode(out.value, NodeScore)
                found.append([score.allocatable, score.inventory_revision])
            else:
                found.append(out.topic)
        return found

    def again(self, seq: int, **of: Any) -> list[Any]:
        """A sample that carries neither pods nor facts."""
        return self.sample(seq, make=sample, **of)

    def elsewhere(self, partition: int) -> list[tuple[str, str]]:
        return answers(self._worker.samples([record_of(keyframe(1), partition=partition)], AT_MS))

    def both(self, first: int, last: int) -> list[list[Any]]:
        """Two agents of one name: what each is answered, and all that is written."""
        return [self.sample(seq, boot_id=boot) for seq in range(first, last) for boot in (HIGH, LOW)]

    def alone(self, first: int, last: int) -> list[list[Any]]:
        return [self.sample(seq, boot_id=LOW) for seq in range(first, last)]

    def two_boots(self, seq: int) -> list[str]:
        return self._worker.held.two_boots(AT_MS + seq * 1_000)

    def lost(self, node: str) -> None:
        self._worker.lost(0, node)

    def silent(self, node: str) -> int:
        return len(self._worker.silent({node: 10_000}))

    def reads_back(self, seq: int) -> list[Out]:
        self._worker.learn([record_of(keyframe(seq))])
        return self._worker.fill([record_of(keyframe(seq + 1))])

    def knows(self, *nodes: str) -> dict[str, Any]:
        held = self._worker.held
        known = [node for node in nodes if self._worker.knows(0, node)]
        dropped = sorted(node for _, node in held.dropped)
        unknown = self._worker.unknown_samples
        return {"known": known, "held": len(held), "dropped": dropped, "unknown_samples": unknown}


@scenarios("worker_nodes")
def test_worker_nodes(case: dict[str, Any]) -> None:
    run(case, Listing)
