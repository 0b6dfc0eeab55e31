"""Records in the name of others: samples, outcomes, dead letters, and nodes that nobody has."""

import base64
import subprocess
import time
from collections.abc import Callable
from typing import Self

import msgspec

from attack.listing import attack, now_ms
from attack.system import AMOUNTS
from attack.target import Target
from attack.wire import Raw, of
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import encode
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.inventory import NodeInventory, Resources, revision_of
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.outcome import NodeOutcome, PodName, Spent
from slacktide.schemas.policy import KEY
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    CREDIT,
    DEAD_LETTER,
    INVENTORY,
    METRIC,
    OUTCOME,
    POLICY,
    SAMPLE,
)
from testbed.background import Background
from testbed.history.records import History, read_history
from testbed.parts import SLACKTIDE
from testbed.samples import FACTS, keyframe

FORGED_BOOT = "999999999999-deadbeef"
REAL, STALE_S = 40, 25.0


@attack
def samples_of_another_node(target: Target) -> Callable[[], None]:
    """Forged with a boot that wins over any, and a machine that nobody has: nothing of it may be sold."""
    name = target.honest.name
    boot = target.dice.choice(["999999999999-x", FORGED_BOOT, f"{now_ms() * 1000:012d}-0badcafe", "~-~"])
    huge = Resources(cpu_milli=76_000 + target.dice.randrange(10**9), mem_bytes=1 << 50)
    facts = msgspec.structs.replace(FACTS, name=name, capacity=huge, allocatable=huge)
    target.forged_boots.add(boot)
    begun_ms = now_ms()
    for seq in range(1, 6):
        body = keyframe(seq, name, boot_id=boot, facts=facts, facts_revision=revision_of(facts), observed_ms=now_ms())
        target.system.put(of(SAMPLE, name, body))
        time.sleep(0.5)

    def sold_by_the_inventory() -> None:
        records = target.system.in_test(lambda: read_history(target.system.bootstrap, (ALLOCATABLE,), begun_ms))
        sold = [one.body for one in History(records).of(ALLOCATABLE, NodeAllocatable) if one.body.node == name]
        assert max([0, *(one.batch_cpu_milli or 0 for one in sold)]) <= (AMOUNTS.cpu_milli or 0)
        assert max([0, *(one.batch_mem_bytes or 0 for one in sold)]) <= (AMOUNTS.mem_bytes or 0)

    return sold_by_the_inventory


def leases(target: Target, since_ms: int = 0) -> list[EvictionCredit]:
    """Leases of the honest node."""
    records = target.system.in_test(lambda: read_history(target.system.bootstrap, (CREDIT,)))
    found = History(records).of(CREDIT, EvictionCredit)
    return [one.body for one in found if one.body.node == target.honest.name and one.body.granted_ms >= since_ms]


@attack
def outcomes_for_the_governor(target: Target) -> Callable[[], None]:
    """Epochs and counts that nobody granted: of a node that exists, and of others."""
    target.wait(lambda: leases(target), "the governor grants leases")
    target.forged_boots.add(FORGED_BOOT)
    epochs = [2**53, 2**63 - 1, 10**6, target.dice.randrange(1 << 40)]
    for node in (target.honest.name, target.ghost()):
        for number, epoch in enumerate(epochs):
            spent = Spent(evictions=target.dice.choice([1, 20, 2**40]), epoch=epoch)
            body = NodeOutcome(
                node=node, boot_id=FORGED_BOOT, seq=1, command_id=f"{number}", rule="BEMemoryEvict",
                target="pod/uid", origin="stream", result="applied", policy_version="", observed_ms=now_ms(),
                acted_ms=now_ms(), age_ms=0, pod=PodName(namespace="default", name="pod"), spent=spent,
            )  # fmt: skip
            target.system.put(of(OUTCOME, node, body))
    since_ms = now_ms() + 2_000

    def still_grants() -> None:
        target.wait(lambda: leases(target, since_ms), "the governor still grants leases", 40)
        assert max(one.epoch for one in leases(target)) <= now_ms() // 1_000  # a term's is at most when it began

    return still_grants


@attack
def a_dead_letter_that_names_the_policy(target: Target) -> Callable[[], None]:
    """An operator writes dead letters back; what one of them carries must not become a policy."""
    evil = msgspec.structs.replace(target.system.policy, version="evil")
    named = target.dice.choice([POLICY, CREDIT, COMMAND, INVENTORY])
    letter = DeadLetter(
        topic=named.name, partition=0, offset=target.dice.randrange(3), reason="no JSON", reader="stream",
        refused_ms=now_ms(), key=KEY, value_base64=base64.b64encode(encode(evil)).decode(), value_bytes=9,
    )  # fmt: skip
    target.forged.update(target.system.put(Raw(DEAD_LETTER.name, KEY.encode(), encode(letter))))
    topics = {topic.name for topic in (named, SAMPLE, OUTCOME)}
    options = [word for topic in sorted(topics) for word in ("--topic", topic)]
    command = [SLACKTIDE, "dead-letter", "replay", "--bootstrap", target.system.bootstrap]
    for asked_for in (options, ["--topic", SAMPLE.name, "--topic", OUTCOME.name]):
        target.system.in_test(
            lambda asked_for=asked_for: subprocess.run(
                [*command, *asked_for], capture_output=True, timeout=60, check=False
            )
        )

    def nothing_of_it() -> None:
        records = target.system.in_test(lambda: read_history(target.system.bootstrap, (POLICY, CREDIT, COMMAND)))
        assert not [record for record in records if record.value is not None and b'"evil"' in record.value]

    return nothing_of_it


class Fleet(Background):
    """Nodes that send a sample a second, from a thread, until each is told to stop."""

    def __init__(self, target: Target, count: int) -> None:
        super().__init__()
        self.names = [f"fleet-{target.dice.randrange(1 << 32):x}-{number}" for number in range(count)]
        self.going = set(self.names)
        self._target = target
        target.liars.update(self.names)

    def __enter__(self) -> Self:
        facts = {name: msgspec.structs.replace(FACTS, name=name) for name in self.names}
        described = [NodeInventory(node=name, revision=revision_of(one), facts=one) for name, one in facts.items()]
        self._target.system.put(*(of(INVENTORY, one.node, one) for one in described))
        return super().__enter__()

    def _run(self) -> None:
        seq = 0
        while not self._over.wait(1.0):
            seq += 1
            self._target.system.put(*(of(SAMPLE, name, keyframe(seq, name)) for name in sorted(self.going)))


@attack
def invented_names_that_fall_silent(target: Target) -> None:
    """So many together that silence looks like a broken pipeline: a node that really stops is still marked."""
    with Fleet(target, REAL) as fleet:
        time.sleep(4)
        invented = [target.ghost() for _ in range(target.dice.randrange(13, 20))]
        target.system.put(*(of(SAMPLE, name, keyframe(1, name)) for name in invented))
        time.sleep(5)
        stopped = target.dice.choice(fleet.names)
        fleet.going.discard(stopped)

        def marked() -> bool:
            records = target.system.in_test(lambda: read_history(target.system.bootstrap, (METRIC,)))
            found = History(records).of(METRIC, NodeMetric)
            return any(one.body.node == stopped and one.body.stale_ms for one in found)

        target.wait(marked, f"{stopped} is marked stale", STALE_S)
