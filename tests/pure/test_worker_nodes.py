"""Which nodes a worker keeps state for, and by what their resources are sold: forged samples among them."""

from __future__ import annotations

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
from slacktide.schemas.topics import ALLOCATABLE, COMMAND, DEAD_LETTER, METRIC, SCORE
from slacktide.streams.records import Out, Record
from slacktide.streams.worker import Worker
from testbed.samples import FACTS, GIB, SUPPRESS, inventory_record, keyframe, policy_record, record_of, sample

PIB = 2**50
LISTED: Policy = msgspec.structs.replace(SUPPRESS, node_source="inventory")
LOW, HIGH = "000000000001-0000000a", "000000000009-0000000b"
AT_MS = 1_900_000_000_000


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


def test_a_scheduler_is_told_of_the_inventorys_allocatable(worker: Worker) -> None:
    worker.inventory(inventory_of())
    [score] = of(give(worker, keyframe(1, facts=HUGE, facts_revision="forged")), SCORE.name, NodeScore)

    assert (score.allocatable.cpu_milli, score.allocatable.mem_bytes) == (4_000, 16 * GIB)
    assert score.inventory_revision == decode(inventory_of().value, NodeInventory).revision


def test_what_is_suppressed_goes_by_the_samples_facts(worker: Worker) -> None:
    """The agent decides by them: the answers would differ else."""
    worker.inventory(inventory_of(capacity=Resources(cpu_milli=1_000, mem_bytes=GIB)))
    [command] = of(give(worker, keyframe(1)), COMMAND.name, NodeCommand)

    assert command.hold[0].terms["allowed_milli"] == 1_600


def test_the_inventorys_annotations_choose_the_strategy(worker: Worker) -> None:
    """A sample that annotates itself to sell 100% does not."""
    annotated = {"node.koordinator.sh/colocation-strategy": '{"cpuReclaimThresholdPercent":100}'}
    facts = msgspec.structs.replace(FACTS, annotations=annotated)
    worker.inventory(inventory_of())
    [plain] = of(give(worker, keyframe(1)), ALLOCATABLE.name, NodeAllocatable)
    [said] = of(
        give(worker, keyframe(2, facts=facts, facts_revision=revision_of(facts))), ALLOCATABLE.name, NodeAllocatable
    )
    worker.inventory(inventory_of(annotations=annotated))
    [told] = of(give(worker, sample(3, facts_revision=revision_of(facts))), ALLOCATABLE.name, NodeAllocatable)

    assert said.batch_cpu_milli == plain.batch_cpu_milli
    assert told.batch_cpu_milli > plain.batch_cpu_milli, "another inventory counts at the next sample"


def test_an_unknown_node_is_answered_and_nothing_is_kept_of_it(worker: Worker) -> None:
    outs = give(worker, keyframe(1), keyframe(2))

    assert answers(outs) == [("skipped", "unknown node")] * 2
    [command, _] = of(outs, COMMAND.name, NodeCommand)
    assert command.reason == "unknown node: no inventory record; is the bridge running?"
    assert not [out for out in outs if out.topic in {METRIC.name, ALLOCATABLE.name, SCORE.name}]
    assert (worker.unknown_samples, len(worker.held), worker.knows(0, "node-1")) == (2, 0, False)


def test_a_node_is_known_as_soon_as_its_inventory_is(worker: Worker) -> None:
    give(worker, keyframe(1))
    worker.inventory(inventory_of())
    outs = give(worker, keyframe(2))

    assert answers(outs) == [("set", "")]
    assert of(outs, ALLOCATABLE.name, NodeAllocatable)


def test_a_node_of_another_partition_is_unknown(worker: Worker) -> None:
    """Its key belongs elsewhere: whoever writes it here would give the node a second set of figures."""
    worker.inventory(inventory_of())
    record = record_of(keyframe(1), partition=3)

    assert answers(worker.samples([record], AT_MS)) == [("skipped", "unknown node")]


def test_samples_of_a_removed_node_bring_nothing_back(worker: Worker) -> None:
    worker.inventory(inventory_of())
    give(worker, keyframe(1))
    removed = worker.inventory(inventory_record(None))
    outs = give(worker, keyframe(2), keyframe(3))

    assert {out.topic for out in removed} == {METRIC.name, ALLOCATABLE.name, SCORE.name}
    assert answers(outs) == [("skipped", "unknown node")] * 2
    assert len(worker.held) == 0
    worker.learn([record_of(keyframe(4))])
    assert worker.fill([record_of(keyframe(5))]) == []
    assert len(worker.held) == 0


def test_dead_letters_of_unknown_nodes_are_few(worker: Worker) -> None:
    outs = [out for n in range(200) for out in give(worker, keyframe(n + 1, node=f"invented-{n}"))]

    assert sum(out.topic == COMMAND.name for out in outs) == 200
    assert sum(out.topic == DEAD_LETTER.name for out in outs) == 4, "one a minute"


def test_an_open_worker_takes_in_so_many_nodes_and_those_of_the_inventory() -> None:
    worker = Worker("w", open_nodes_max=3)
    worker.policy(policy_record())
    told = [answers(give(worker, keyframe(1, node=f"node-{n}")))[0] for n in range(5)]

    assert told == [("set", "")] * 3 + [("skipped", "unknown node")] * 2
    worker.inventory(inventory_of("node-4"))
    assert answers(give(worker, keyframe(2, node="node-4"))) == [("set", "")]
    assert answers(give(worker, keyframe(2, node="node-0"))) == [("set", "")]


def test_in_an_open_worker_too_the_inventory_counts_where_there_is_one() -> None:
    worker = Worker("w")
    worker.policy(policy_record())
    forged = keyframe(1, facts=HUGE, facts_revision="forged")
    [open_] = of(give(worker, forged), ALLOCATABLE.name, NodeAllocatable)
    worker.inventory(inventory_of())
    [listed] = of(give(worker, sample(2, facts_revision="forged")), ALLOCATABLE.name, NodeAllocatable)

    assert (open_.inventory_revision, open_.batch_mem_bytes > 16 * GIB) == ("", True)
    assert (listed.inventory_revision != "", listed.batch_mem_bytes < 16 * GIB) == (True, True)


def test_nodes_that_do_not_exist_are_forgotten_when_the_inventory_decides() -> None:
    worker = Worker("w")
    worker.policy(policy_record())
    give(worker, keyframe(1), keyframe(1, node="node-2"))
    worker.inventory(inventory_of())
    worker.policy(policy_record(LISTED))

    assert (worker.knows(0, "node-1"), worker.knows(0, "node-2")) == (True, False)
    assert worker.held.dropped == {(0, "node-2")}


def test_a_node_that_is_lost_is_forgotten_unless_the_inventory_lists_it() -> None:
    worker = Worker("w")
    worker.policy(policy_record())
    worker.inventory(inventory_of())
    give(worker, keyframe(1), keyframe(1, node="node-2"))
    for node in ("node-1", "node-2"):
        worker.lost(0, node)

    assert (worker.knows(0, "node-1"), worker.knows(0, "node-2")) == (True, False)
    assert worker.silent({"node-2": 10_000}) == []


@pytest.mark.parametrize("boot_id", ["999999999999-x", "999999999999-0badcafe", "1", ""])
def test_a_boot_id_that_no_agent_has_is_refused(worker: Worker, boot_id: str) -> None:
    worker.inventory(inventory_of())
    give(worker, keyframe(1))
    outs = give(worker, keyframe(2, boot_id=boot_id))
    [command] = of(outs, COMMAND.name, NodeCommand)

    assert (command.answer, command.reason[:25]) == ("skipped", "not a NodeSample: boot id")
    assert [out.topic for out in outs] == [DEAD_LETTER.name, COMMAND.name]
    assert answers(give(worker, sample(3))) == [("set", "")], "the agent's own samples go on"


def test_two_agents_of_one_name_freeze_the_node(worker: Worker) -> None:
    """Both are answered, nothing is published, and after 15 s of one alone it goes on."""
    worker.inventory(inventory_of())
    give(worker, keyframe(1, boot_id=LOW))
    both = [give(worker, keyframe(n, boot_id=boot)) for n in range(2, 12) for boot in (HIGH, LOW)]

    assert [answers(outs)[0][0] for outs in both[:2]] == ["set", "set"]
    assert all(answers(outs) == [("skipped", "two boots")] for outs in both[-10:])
    assert not [out for outs in both[-10:] for out in outs if out.topic != COMMAND.name]
    assert worker.held.two_boots(AT_MS + 12_000) == ["node-1"]

    alone = [give(worker, keyframe(n, boot_id=LOW)) for n in range(12, 30)]
    assert [answers(outs)[0][0] for outs in alone] == ["skipped"] * 14 + ["set"] * 4
    said = [one for outs in alone for one in of(outs, ALLOCATABLE.name, NodeAllocatable)]
    assert {one.boot_id for one in said} == {LOW}
    assert worker.held.two_boots(AT_MS + 29_000) == []


def test_an_invented_boot_does_not_lock_the_agent_out(worker: Worker) -> None:
    """One forged sample, with a time a day ahead: the agent is believed again after 15 s."""
    worker.inventory(inventory_of())
    give(worker, keyframe(1))
    give(worker, keyframe(2, boot_id=HIGH, observed_ms=AT_MS + 86_400_000))
    told = [give(worker, keyframe(n)) for n in range(3, 22)]

    assert answers(told[0]) == [("set", "")]
    assert answers(told[6]) == [("skipped", "two boots")]
    assert answers(told[-1]) == [("set", "")]
    said = [one for outs in told for one in of(outs, ALLOCATABLE.name, NodeAllocatable)]
    assert {one.observed_ms < AT_MS for one in said} == {True}


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
