"""One node: a virtual machine, its agent's life (ticks, timers, crashes), and the agent's door to the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.doors import CrashError, WatchedKernel, WatchedSpool
from sim.timeline import Life, NodeClock
from slacktide.agents.node.agent import AgentSettings, NodeAgent
from slacktide.deploy.virtual.machine import Machine
from slacktide.schemas.codec import decode, encode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.credit import EvictionCredit
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.schemas.sample_columns_codec import encoded
from slacktide.schemas.topics import COMMAND, CREDIT, OUTCOME, POLICY, SAMPLE
from slacktide.streams.records import Record

if TYPE_CHECKING:
    from sim.world import World

PUBLISH_EVERY_MS = 200
CREDIT_EVERY_MS = 250


class Node(Life):
    """Stands in for the process around one ``NodeAgent``."""

    def __init__(self, world: World, name: str, partition: int, machine: Machine, facts: NodeFacts) -> None:
        super().__init__(world.timeline)
        self.world = world
        self.name = name
        self.partition = partition
        self.machine = machine
        self.facts = facts
        self.pods: list[Pod] = []
        """What the agent was told; the machine may run others already."""
        self.clock = NodeClock(world.timeline, world.rng.randrange(10**9))
        self.kernel = WatchedKernel(self)
        self.spool = WatchedSpool(self)
        self.policy = DEFAULT
        self.agent: NodeAgent | None = None
        self.boots = 0
        self.crash_in: int | None = None
        """Kill the agent in so many steps of its acts."""
        self.settings = AgentSettings(restore_on_exit=world.rng.random() < 0.3)
        self._command_offset = 0
        self._policy_offset = 0
        self._credit_offset = 0
        self._credit_read_ms = 0
        self.log_away = False
        """As its agent knows."""
        self._sent_at_ms = 0
        self._unsent: bytes | None = None

    @property
    def key(self) -> bytes:
        return self.name.encode()

    def advance(self) -> None:
        behind_ms = self.world.timeline.now_ms - self.machine.elapsed_ns // 1_000_000
        if behind_ms:
            self.machine.step(behind_ms)

    def boot(self) -> None:
        """Start the agent's process. Spool, policy and pods are on disk; all else is new."""
        world = self.world
        self.boots += 1
        self._life += 1
        boot_id = f"{self.boots:012d}-{world.rng.getrandbits(32):08x}"
        # It reads answers from the log's end on, or, now and then, some that were there before.
        end = world.log.end(COMMAND.name, self.partition)
        self._command_offset = max(0, end - world.rng.choice([0, 0, 0, 3, 30]))
        self._policy_offset = self._credit_offset = 0
        self._credit_read_ms = world.timeline.now_ms
        self.kernel.restart()
        self.spool.reopen()
        self.crash_in = None
        self.agent = world.parts.agent(
            node=self.name,
            boot_id=boot_id,
            kernel=self.kernel,
            spool=self.spool,
            clock=self.clock,
            policy=self.policy,
            facts=self.facts,
            pods=self.pods,
            settings=self.settings,
        )
        world.trace.note(self.name, "boots", boot_id)
        world.checker.booted(self, boot_id)
        self._do(lambda agent: agent.start())
        self.while_alive(0, self._tick)
        self.while_alive(0, self._publish)
        self.while_alive(0, self._hear_credit)
        self.consume_commands()
        self.hear_policy()

    def stop(self, *, kill: bool) -> None:
        """End the agent's process, by -9 or by asking."""
        if self.agent is None:
            return
        if not kill:
            self._do(lambda agent: agent.close())
            if self.agent is None:  # it was killed during the eviction
                return
        self.world.trace.note(self.name, "killed" if kill else "stops")
        self.world.checker.stopped(self, kill=kill)
        self.agent = None
        self._life += 1
        self._unsent = None

    def tell_pods(self, pods: list[Pod]) -> None:
        self.pods = pods
        if self.agent is not None:
            self.agent.inventory(self.facts, pods)
        self.world.checker.told(self)

    def consume_commands(self) -> None:
        log = self.world.log
        if self.agent is None or not log.up:
            return
        entries = log.read(COMMAND.name, self.partition, self._command_offset)
        for entry in entries:
            if self.agent is None:
                return
            self._command_offset = entry.offset + 1
            self._command(entry)

    def hear_policy(self) -> None:
        """Read the policy topic on; what does not decode, or is null, changes nothing."""
        if self.agent is None or not self.world.log.up:
            return
        for entry in self.world.log.read(POLICY.name, 0, self._policy_offset):
            self._policy_offset = entry.offset + 1
            try:
                self.policy = decode(entry.value, Policy)
            except BadMessageError:
                continue
            self.agent.policy(self.policy)
            self.world.checker.told(self)

    def _hear_credit(self) -> None:
        """Look whether the governor has granted anything; a lease counts from the look before."""
        self.while_alive(CREDIT_EVERY_MS * self.world.leisure, self._hear_credit)
        agent, log = self.agent, self.world.log
        assert agent is not None
        self.log_away = not log.up
        agent.credit_account.log_is(away=self.log_away, now_ns=self.clock.mono_ns())
        if self.log_away:
            return
        since_ms, self._credit_read_ms = self._credit_read_ms, self.world.timeline.now_ms
        for entry in log.read(CREDIT.name, 0, self._credit_offset):
            self._credit_offset = entry.offset + 1
            if entry.key == self.key and entry.value is not None:
                credit = decode(entry.value, EvictionCredit)
                self.world.checker.hears_credit(self, credit, since_ms)
                agent.credit(credit, self.clock.mono_ns() - (self.world.timeline.now_ms - since_ms) * 1_000_000)

    def log_is_back(self, *, wiped: bool) -> None:
        """The broker is there again: the newest sample goes out first, and reading goes on."""
        if wiped:
            self._command_offset = self._policy_offset = self._credit_offset = 0
        if self._unsent is not None:
            value, self._unsent = self._unsent, None
            self._append(value)
        self.consume_commands()
        self.hear_policy()

    def _do(self, act: Callable[[NodeAgent], object]) -> None:
        """Let the agent work; what it leaves to wait for is planned. A crash ends the process."""
        agent = self.agent
        assert agent is not None
        self.advance()
        self.world.acting = self
        try:
            act(agent)
        except CrashError:
            self.stop(kill=True)
            self.while_alive(self.world.rng.randint(50, 4000), self.boot)
            return
        finally:
            self.world.acting = None
        deadline_ns = agent.deadline_ns()
        if deadline_ns is not None:
            late_ms = self.world.rng.choice([0, 0, 1, 10])
            self.while_alive(max(0, (deadline_ns - self.clock.mono_ns()) // 1_000_000) + late_ms, self._overdue)
        if agent.keyframe_wanted:
            self.while_alive(self.world.rng.randint(1, 20), self._keyframe)

    def _overdue(self) -> None:
        agent = self.agent
        assert agent is not None
        deadline_ns = agent.deadline_ns()
        if deadline_ns is not None and deadline_ns <= self.clock.mono_ns():
            self._do(lambda agent: agent.overdue())

    def _keyframe(self) -> None:
        if self.agent is not None and self.agent.keyframe_wanted:
            self._take()

    def _tick(self) -> None:
        self.while_alive(self.world.interval_now_ms + self.world.rng.choice([0, 0, 0, 1, 30]), self._tick)
        if not self.world.still:
            self._take()

    def _take(self) -> None:
        def take(agent: NodeAgent) -> None:
            self.world.checker.taking(self)
            sample = agent.take()
            self.world.checker.took(self, sample)
            self._send(encoded(sample, agent.pods))

        self._do(take)

    def _send(self, value: bytes) -> None:
        """Hand a sample to the producer, which keeps order, may lose it, and may send it twice."""
        trouble, rng = self.world.trouble, self.world.rng
        if rng.random() < trouble.loss:
            self.world.trace.note(self.name, "lost", "a sample")
            return
        for _ in range(2 if rng.random() < trouble.double else 1):
            delay_ms = self.world.delay_ms()
            self._sent_at_ms = max(self._sent_at_ms, self.world.timeline.now_ms + delay_ms)
            self.while_alive(self._sent_at_ms - self.world.timeline.now_ms, lambda: self._append(value))

    def _append(self, value: bytes) -> None:
        if self.world.log.up:
            self.world.append(SAMPLE.name, self.partition, self.key, value)
        else:
            self._unsent = value

    def _command(self, entry: Record) -> None:
        """As the agent's door does: other nodes' records are dropped before they are decoded."""
        if entry.key != self.key:
            return
        try:
            command = decode(entry.value, NodeCommand)
        except BadMessageError:
            self.world.trace.note(self.name, "cannot read", entry.offset)
            return
        self.world.checker.hears(self, command)
        self._do(lambda agent: agent.answered(command))
        self.world.checker.heard(self)

    def _publish(self) -> None:
        """Send outcomes on; an acknowledgement may be lost, or end in the middle."""
        self.while_alive(PUBLISH_EVERY_MS * self.world.leisure, self._publish)
        world = self.world
        if not world.log.up:
            return
        waiting: list[tuple[int, NodeOutcome]] = self.spool.pending(50)
        for position, outcome in waiting:
            if world.rng.random() < world.trouble.loss:
                return
            world.append(OUTCOME.name, self.partition, self.key, encode(outcome))
            if world.rng.random() < world.trouble.double:
                return
            self.spool.acknowledge(position)
