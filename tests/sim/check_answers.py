"""Workers answer every sample, equally and truly, and skip only what they cannot decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sim.log import PARTITIONS
from sim.trace import Checks
from slacktide.schemas.allocatable import NodeAllocatable
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand, command_id
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.policy import DEFAULT, Policy
from slacktide.schemas.sample import NodeSample
from slacktide.schemas.topics import BY_NAME, COMMAND, DEAD_LETTER, INVENTORY, POLICY, SAMPLE
from slacktide.streams.decisions.node_decision import NodeDecision, answer_of, decide_node
from slacktide.streams.decisions.suppress.cpu_suppress import RULE, TARGET
from slacktide.streams.records import Out, Record
from slacktide.streams.samples import SampleReader
from testbed.history.answers import Name, name_of
from testbed.history.published import below_floor
from testbed.sampled import decoded

if TYPE_CHECKING:
    from sim.world import World


@dataclass(slots=True)
class Known:
    """What a worker was shown since its start, and has not been told to forget."""

    policy: Policy = DEFAULT
    pods: dict[int, dict[str, str]] = field(default_factory=lambda: {partition: {} for partition in range(PARTITIONS)})
    """Partition to node to the newest revision."""
    facts: dict[int, dict[str, str]] = field(default_factory=lambda: {partition: {} for partition in range(PARTITIONS)})

    def shown(self, partition: int, sample: NodeSample) -> None:
        if sample.pods is not None:
            self.pods[partition][sample.node] = sample.pods_revision
        if sample.facts is not None:
            self.facts[partition][sample.node] = sample.facts_revision

    def removed(self, partition: int, node: str) -> None:
        self.pods[partition].pop(node, None)
        self.facts[partition].pop(node, None)


class AnswerChecks(Checks):
    """Judges the workers by what they were handed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._known: dict[str, Known] = {}
        self._sent: set[Name] = set()
        self._samples = SampleReader()

    def worker_started(self, worker: str) -> None:
        self._known[worker] = Known()

    def worker_told(self, worker: str, entry: Record, outs: Sequence[Out]) -> None:
        """A policy or inventory record: bad ones are dead letters, null ones are not."""
        kind = BY_NAME[entry.topic].message
        try:
            message = decode(entry.value, kind)
        except BadMessageError:
            message = None
        letters = [out for out in outs if out.topic == DEAD_LETTER.name]
        bad = message is None and entry.value is not None
        self._must(len(letters) == bad, "not one dead letter for a bad record", worker, letters, entry)
        if isinstance(message, Policy):
            self._known[worker].policy = message
        if entry.topic == INVENTORY.name and entry.value is None and entry.key is not None:
            self._known[worker].removed(entry.partition, entry.key.decode())
        if entry.topic in {POLICY.name, INVENTORY.name}:
            self._letters(worker, [entry] * bad, letters)

    def learns(self, worker: str, entries: Sequence[Record]) -> None:
        for entry in entries:
            sample = self._sample(entry)
            if sample is not None:
                self._known[worker].shown(entry.partition, sample)

    def forgets(self, worker: str, partition: int) -> None:
        self._known[worker].pods[partition] = {}
        self._known[worker].facts[partition] = {}

    def answered(self, worker: str, entries: Sequence[Record], outs: Sequence[Out]) -> None:
        """One batch: one answer to each sample, a dead letter for each record that is none."""
        commands = [(out, decode(out.value, NodeCommand)) for out in outs if out.topic == COMMAND.name]
        by_name: dict[Name, list[NodeCommand]] = {}
        for out, command in commands:
            self._must(out.partition == entries[0].partition, "answers into another partition", command)
            self._must(out.key == command.node.encode(), "answers under another key", command)
            by_name.setdefault(name_of(command), []).append(command)
        samples = [(entry, self._sample(entry)) for entry in entries]
        good = [sample for _, sample in samples if sample is not None]
        asked, told = Counter(map(name_of, good)), Counter(name_of(command) for _, command in commands)
        self._must(asked == told, "not answered, or unasked", worker, asked - told, told - asked)
        for sample in good:
            self._known[worker].shown(entries[0].partition, sample)
            self._true(worker, entries[0].partition, sample, by_name[name_of(sample)].pop(0))
        bad = [entry for entry, sample in samples if sample is None and entry.value is not None]
        self._letters(worker, bad, [out for out in outs if out.topic == DEAD_LETTER.name])
        for out in outs:
            kind = BY_NAME[out.topic].message
            if out.value is not None:
                message = decode(out.value, kind)
                if isinstance(message, NodeAllocatable):
                    self._floored(message)

    def sent(self, outs: Sequence[Out]) -> None:
        """A batch reached the log, whatever became of it there."""
        self._sent.update(name_of(decode(out.value, NodeCommand)) for out in outs if out.topic == COMMAND.name)

    def finished(self) -> None:
        """Every sample that the log still holds was answered, at least once."""
        for partition in range(PARTITIONS):
            for entry in self._world.log.read(SAMPLE.name, partition, 0):
                sample = self._sample(entry)
                recent = entry.timestamp_ms > self._world.timeline.wall_ms - 500
                self._must(sample is None or recent or name_of(sample) in self._sent, "never answered", sample)

    def _true(self, worker: str, partition: int, sample: NodeSample, command: NodeCommand) -> None:
        known, checker = self._known[worker], self._world.checker
        lacks = {
            "no pods": known.pods[partition].get(sample.node) != sample.pods_revision,
            "no facts": known.facts[partition].get(sample.node) != sample.facts_revision,
            "other policy": known.policy.version != sample.policy_version,
        }
        what = (worker, command, sample, lacks)
        if command.reason in lacks:
            self._must(command.answer == "skipped" and lacks[command.reason], "skipped for an untrue reason", *what)
            return
        self._must(not lacks["other policy"], "decided by another policy than the sample's", *what)
        pods = checker.pods.get(sample.pods_revision)
        facts = checker.facts.get(sample.facts_revision)
        self._must(pods is not None and facts is not None, "decided by what nobody ever said", *what)
        decision = decide_node(sample, facts, pods, known.policy)
        own = decision.limits
        self._must(command.answer == answer_of(decision), "decided otherwise than", own, *what)
        self._must(command.reason == own.reason, "another reason than", own, *what)
        self._victims(sample, command, decision, known.policy.version)
        held = [hold.limits for hold in command.hold]
        self._must(held == ([own.limits] if own.answer == "set" else []), "another limit than", own, *what)
        versions = (command.policy_version, command.facts_revision, command.pods_revision)
        inputs = (sample.policy_version, sample.facts_revision, sample.pods_revision)
        if command.answer == "keep":  # it leaves out what the sample names
            inputs = (sample.policy_version, "", "")
        self._must(versions == inputs, "other inputs", *what)
        ids = {command_id(sample.node, sample.boot_id, sample.seq, RULE, TARGET, known.policy.version)}
        self._must({hold.id for hold in command.hold} <= ids, "another id than its inputs give", *what)

    def _victims(self, sample: NodeSample, command: NodeCommand, own: NodeDecision, version: str) -> None:
        wanted = [] if command.answer == "skipped" else [(one.rule, one.pod.uid) for one in own.evict]
        named = [(one.rule, one.uid) for one in command.evict]
        self._must(named == wanted, "evicts others than", wanted, command, sample)
        for one in command.evict:
            id_ = command_id(sample.node, sample.boot_id, sample.seq, one.rule, f"pod/{one.uid}", version)
            self._must(one.id == id_, "another id than its inputs give", command)

    def _floored(self, said: NodeAllocatable) -> None:
        """What is published is no less than what runs there has asked for, as far as the node has it."""
        pods = self._world.checker.pods.get(said.pods_revision)
        self._must(pods is not None, "figures by pods that nobody ever said", said)
        facts = self._world.checker.facts.get(said.facts_revision)
        short = below_floor(said, pods or (), None if facts is None else facts.capacity)
        self._must(not short, "sells less than was sold already", short, said)

    def _letters(self, worker: str, bad: Sequence[Record], letters: Sequence[Out]) -> None:
        """Each bad record is kept, with where it came from and why."""
        read = [decode(out.value, DeadLetter) for out in letters]
        where = Counter((letter.topic, letter.partition, letter.offset) for letter in read)
        wanted = Counter((entry.topic, entry.partition, entry.offset) for entry in bad)
        self._must(where == wanted, "other dead letters than bad records", worker, where, wanted)
        self._must(all(letter.reason for letter in read), "a dead letter without a reason", worker)

    def _sample(self, entry: Record) -> NodeSample | None:
        """The sample, or None for a record that is none, or not under its node's key."""
        try:
            sample = decoded(entry, NodeSample, self._samples)
        except BadMessageError:
            return None
        return sample if entry.key == sample.node.encode() else None
