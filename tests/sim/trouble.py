"""Everything that goes wrong, drawn from the seed: what, when and for how long."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sim.log import PARTITIONS
from sim.policies import POLICIES
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import Hold, NodeCommand
from slacktide.schemas.sample import Limits
from slacktide.schemas.topics import COMMAND, INVENTORY, POLICY, SAMPLE
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET
from slacktide.streams.records import Out

if TYPE_CHECKING:
    from sim.node import Node

BROKEN = [
    None,
    b"",
    b"\xff\xfe\x00",
    b"null",
    b"[]",
    b'{"node":',
    b'{"node": 7}',
    b'{"node": "node-0", "seq": -1}',
    b"[" * 20_000,
    '{"node": "n\u00f6de"}'.encode("latin-1"),
]
CPUSETS: list[list[int] | None] = [None, [], [0], [1, 0], [0, 1, 2, 3], [0, 99], [-1]]


def bad_value(rng: random.Random, topic: str) -> bytes | None:
    """A body that does not decode; never null for a sample: a null is a deletion, and deletes nothing there."""
    return rng.choice(BROKEN[1:] if topic == SAMPLE.name else BROKEN)


def bad_command(rng: random.Random, node: Node) -> NodeCommand:
    """An answer with one thing, or several, that no worker would say."""
    agent = node.agent
    boot_id = agent.boot_id if agent is not None else "000000000001-dead"
    seq = rng.randint(0, 130)
    rule, target = rng.choice([(RULE, TARGET), (RULE, "kubepods"), ("evict", TARGET)])
    limits = Limits(be_cfs_quota_us=rng.choice([None, 2_000, 50_000, 10_000_000]), be_cpuset=rng.choice(CPUSETS))
    hold = Hold(id=f"{rng.getrandbits(64):016x}", rule=rule, target=target, limits=limits, bound="claimed")
    return NodeCommand(
        id=hold.id,
        node=rng.choice([node.name, node.name, "another"]),
        boot_id=rng.choice([boot_id, boot_id, "000000000000-cafe", "999999999999-beef"]),
        seq=seq,
        observed_ms=0,
        policy_version=rng.choice([node.policy.version, "made-up"]),
        facts_revision="",
        pods_revision="",
        answer=rng.choice(["set", "set", "keep", "skipped"]),
        reason="no pods" if rng.random() < 0.3 else "",
        hold=rng.choice([[hold], [hold, hold], []]),
    )


def bent(rng: random.Random, command: NodeCommand) -> NodeCommand:
    """A true answer with one thing made worse on its way: what a broken worker might send."""
    quota_us, period_us = (
        rng.choice([None, 2_000, 10_000_000, 500, 0, -7]),
        rng.choice([100_000, 100_000, 0, -1, 10**9]),
    )
    limits = Limits(be_cfs_quota_us=quota_us, be_cfs_period_us=period_us, be_cpuset=rng.choice(CPUSETS))
    hold = Hold(id=rng.choice([command.id, "0" * 16]), rule=RULE, target=TARGET, limits=limits, bound="bent")
    changes: dict[str, object] = rng.choice([
        {"answer": "set", "hold": [hold]},
        {"answer": "set", "hold": []},
        {"answer": "keep", "hold": []},
        {"answer": "skipped", "reason": "bent"},
        {"policy_version": "bent"},
        {"boot_id": "999999999999-beef"},
        {"node": "another"},
        {"seq": max(0, command.seq + rng.choice([-70, -70, -1, 1, 70]))},
    ])  # fmt: skip
    return msgspec.structs.replace(command, worker="", **changes)


if TYPE_CHECKING:
    from sim.crew import Process
    from sim.node import Node
    from sim.world import World


class Trouble:
    """Rates that the doors ask for, and strokes of fate."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loss = self.double = self.late = self.slow = self.bent = 0.0
        """Parts of records: lost, sent twice, late under way, answered late, answered wrongly."""
        self._over = False
        self._outages = 0

    def plan(self, until_ms: int, count: int) -> list[int]:
        rng = self.world.rng
        strokes: list[Callable[[], None]] = [
            self._outage, self._outage, self._wipe, self._wipe, self._bad_network, self._bad_network,
            self._slow_answers, self._bent_answers, self._bent_answers, self._poison, self._poison,
            self._kill_worker, self._kill_worker, self._all_workers, self._pause_worker, self._share_out,
            self._crash_agent, self._crash_agent, self._crash_agent, self._restart_agent,
            self._policy, self._policy, self._set_clock,
            self._deaf_kernel, self._deaf_kernel, self._governor,
        ]  # fmt: skip
        times = []
        for _ in range(count):
            stroke = rng.choice(strokes)
            times.append(rng.randint(1_000, until_ms - 1_000))
            self.world.timeline.at(times[-1], stroke)
        return times

    def end(self) -> None:
        world = self.world
        self._over = True
        self.loss = self.double = self.late = self.slow = self.bent = 0.0
        self._outages = 0
        if not world.log.up:
            self._back(wiped=False)
        for node in world.nodes:
            node.kernel.refuses = node.kernel.hides = False
            node.crash_in = None
            if node.agent is None:
                node.boot()
        world.load.end_leaks()
        world.governing.start()
        for process in world.crew.processes:
            process.paused_until_ms = 0
            if process.brain is None:
                process.start()
            else:
                world.crew.joined(process)
        world.publish()

    def on_its_way(self, out: Out) -> Out:
        if not self.bent or out.topic != COMMAND.name or self.world.rng.random() >= self.bent:
            return out
        return msgspec.structs.replace(out, value=encode(bent(self.world.rng, decode(out.value, NodeCommand))))

    def _for_a_while(self, what: Callable[[], None], longest_ms: int = 15_000) -> None:
        """Undo it later, unless the trouble is over and all is undone already."""
        self.world.timeline.after(self.world.rng.randint(300, longest_ms), lambda: None if self._over else what())

    def long_outage(self) -> None:
        self._outage(600_000)

    def long_silence(self) -> None:
        node = self._some_node()
        node.stop(kill=True)
        self._for_a_while(lambda: None if node.agent else node.boot(), 600_000)

    def nobody_decides(self) -> None:
        """All workers are away for minutes: the guard covers them."""
        for process in self.world.crew.processes:
            process.kill()
            self._for_a_while(process.start, 600_000)

    def _outage(self, longest_ms: int = 15_000) -> None:
        world = self.world
        self._outages += 1
        world.trace.note("broker", "down")
        world.log.up = False
        self._for_a_while(self._up, longest_ms)

    def _wipe(self) -> None:
        """A memory broker starts anew: topics are made again, and their writers publish when they notice."""
        world = self.world
        world.trace.note("broker", "forgets all")
        world.log.wipe()
        world.governing.wiped()
        if world.log.up:
            self._back(wiped=True)
        else:
            for door in (*world.nodes, *world.crew.processes):
                door.log_is_back(wiped=True)
        world.timeline.after(world.rng.randint(100, 3000), lambda: world.publish() if world.log.up else None)
        if world.rng.random() < 0.3:
            self._all_workers()

    def _up(self) -> None:
        self._outages = max(0, self._outages - 1)
        if not self._outages and not self.world.log.up:
            self._back(wiped=False)

    def _back(self, *, wiped: bool) -> None:
        world = self.world
        world.trace.note("broker", "up")
        world.log.up = True
        for door in (*world.nodes, *world.crew.processes):
            door.log_is_back(wiped=wiped)
        world.timeline.after(world.rng.randint(0, 500), lambda: world.publish() if world.log.up else None)

    def _bad_network(self) -> None:
        rng = self.world.rng
        self.loss, self.double, self.late = rng.choice([0.02, 0.2]), rng.choice([0, 0.2]), rng.choice([0, 0.1, 0.5])
        self.world.trace.note("network", "bad", self.loss, self.double, self.late)

        def good() -> None:
            self.loss = self.double = self.late = 0.0
            self.world.trace.note("network", "good")

        self._for_a_while(good)

    def _slow_answers(self) -> None:
        self.slow = self.world.rng.choice([0.1, 0.5, 1.0])
        self.world.trace.note("workers", "slow", self.slow)
        self._for_a_while(partial(setattr, self, "slow", 0.0))

    def _bent_answers(self) -> None:
        self.bent = self.world.rng.choice([0.2, 1.0])
        self.world.trace.note("workers", "wrong", self.bent)
        self._for_a_while(partial(setattr, self, "bent", 0.0))

    def _kill_worker(self) -> None:
        process = self._some_process()
        process.kill()
        self._for_a_while(process.start, 8_000)

    def _all_workers(self) -> None:
        for process in self.world.crew.processes:
            process.kill()
            self._for_a_while(process.start, 12_000)

    def _pause_worker(self) -> None:
        """Stopped for so long that its partitions move; it answers on when it wakes."""
        world, process = self.world, self._some_process()
        pause_ms = world.rng.randint(500, 12_000)
        world.trace.note(process.name, "pauses", f"{pause_ms} ms")
        process.paused_until_ms = world.timeline.now_ms + pause_ms
        world.timeline.after(
            world.rng.randint(300, 6_000), lambda: None if process.answering else world.crew.lock_out(process)
        )

        def wakes() -> None:
            for partition in list(process.held):
                process.poll(partition)
            world.timeline.after(
                world.rng.randint(0, 3_000), lambda: world.crew.joined(process) if process.brain else None
            )

        world.timeline.at(process.paused_until_ms, wakes)

    def _share_out(self) -> None:
        self.world.trace.note("group", "shares out anew")
        self.world.crew.share_out()

    def _crash_agent(self) -> None:
        node = self._some_node()
        node.crash_in = self.world.rng.randint(1, 7)

    def _restart_agent(self) -> None:
        node = self._some_node()
        node.stop(kill=self.world.rng.random() < 0.5)
        self._for_a_while(lambda: None if node.agent else node.boot(), 6_000)

    def _policy(self) -> None:
        self.world.policy_of(self.world.rng.choice(POLICIES))

    def leak(self, node: Node, for_ms: int | None = None) -> None:
        """Batch work takes more and more memory, for so long; None: until all trouble ends."""
        if not self._over:
            self.world.load.leak(node, for_ms)

    def _governor(self) -> None:
        self.world.governing.kill()
        self._for_a_while(self.world.governing.start, 12_000)

    def _set_clock(self) -> None:
        node = self._some_node()
        node.clock.wall_off_ms += self.world.rng.choice([-3_600_000, -7_000, -2_000, 2_000, 7_000, 3_600_000])
        self.world.trace.note(node.name, "clock", node.clock.wall_off_ms)

    def _deaf_kernel(self) -> None:
        kernel = self._some_node().kernel
        if self.world.rng.random() < 0.5:
            kernel.refuses = True
        else:
            kernel.hides = True

        def hears() -> None:
            kernel.refuses = kernel.hides = False

        self._for_a_while(hears, 5_000)

    def _poison(self) -> None:
        """Records that nobody can use, and answers that nobody may carry out."""
        world, rng = self.world, self.world.rng
        if not world.log.up:
            return
        node = self._some_node()
        for _ in range(rng.randint(1, 5)):
            topic = rng.choice([SAMPLE.name, COMMAND.name, POLICY.name, INVENTORY.name])
            key = rng.choice([node.key, b"", b"nobody", None]) if topic != POLICY.name else b"policy"
            partition = 0 if topic == POLICY.name else rng.randrange(PARTITIONS)
            world.append(topic, partition, key, bad_value(rng, topic))
        for _ in range(rng.randint(0, 4)):
            command = bad_command(rng, node)
            world.trace.note("poison", "command", node.name, msgspec.json.encode(command).decode())
            world.append(COMMAND.name, node.partition, node.key, msgspec.json.encode(command))

    def _some_node(self) -> Node:
        return self.world.rng.choice(self.world.nodes)

    def _some_process(self) -> Process:
        return self.world.rng.choice(self.world.crew.processes)
