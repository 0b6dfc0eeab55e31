"""The stream worker without Kafka: records in, records out, nothing else. Its shells feed it.

Every decodable sample is answered with one command. A command is a function of the sample, the pods
and facts that the sample names, and the policy, so that a record that comes twice is answered the
same; what a node is known by (pods, facts, window) follows only samples newer than all before them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from slacktide.schemas import policy as policies
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeFacts, NodeInventory, Pod
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample import NodeSample
from slacktide.streams.answering import NO_FACTS, NO_PODS, OTHER_POLICY, Answerer
from slacktide.streams.records import TIME_MS_MAX, Out, Record, Writer, text_of
from slacktide.streams.scores import node_score
from slacktide.streams.shadow import Seen, Shadow
from slacktide.streams.stale import LastSaid, Said
from slacktide.streams.windows.figures import NodeFigures

__all__ = ["NO_FACTS", "NO_PODS", "OTHER_POLICY", "Out", "Record", "Worker"]

T = TypeVar("T")

REVISIONS_KEPT = 4
"""Of pods and of facts, per node: what a redelivered sample may still name."""
AMOUNT_MAX = 2**50
"""Of millicores, bytes and milliseconds in a sample: more is an error, not a machine."""


@dataclass(slots=True)
class _Node:
    """What samples have told of one node."""

    newest: tuple[str, int] = ("", -1)
    clock_epoch: int = 0
    pods: OrderedDict[str, list[Pod]] = field(default_factory=OrderedDict)
    facts: OrderedDict[str, NodeFacts] = field(default_factory=OrderedDict)
    figures: NodeFigures = field(default_factory=NodeFigures)

    def see(self, sample: NodeSample, policy: Policy) -> bool:
        """Remember what the sample carries; whether it is newer than all before it and in the window."""
        newer = (sample.boot_id, sample.seq) > self.newest
        _remember(self.pods, sample.pods_revision, sample.pods, newer=newer)
        _remember(self.facts, sample.facts_revision, sample.facts, newer=newer)
        if not newer:
            return False
        restarted = (sample.boot_id, sample.clock_epoch) != (self.newest[0], self.clock_epoch)
        self.newest, self.clock_epoch = (sample.boot_id, sample.seq), sample.clock_epoch
        facts, pods = self.facts.get(sample.facts_revision), self.pods.get(sample.pods_revision)
        return self.figures.merge(sample, facts, pods, policy, restarted=restarted)


def _remember(kept: OrderedDict[str, T], revision: str, content: T | None, *, newer: bool) -> None:
    """Keep the newest revisions, the one in use last. What an older sample carries displaces nothing."""
    if content is not None and (newer or (revision not in kept and len(kept) < REVISIONS_KEPT)):
        kept[revision] = content
        kept.move_to_end(revision, last=newer)
    elif newer and revision in kept:
        kept.move_to_end(revision)
    while len(kept) > REVISIONS_KEPT:
        kept.popitem(last=False)


class Worker:
    """Answers samples by the policy, and publishes what they come to. Raises on no record, whatever is in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_force = policies.DEFAULT
        """The policy: the last good one of the highest writer epoch."""
        self.inventories = 0
        """Inventory records read."""
        self.late_samples = 0
        """Samples that were answered but are in no window: repeated, or older than what came before."""
        self.shadow: Shadow | None = None
        """What decides the same samples by another policy, into topics of its own."""
        self._writer = Writer(f"stream/{name}")
        self._policy_epoch = 0
        self._nodes: dict[int, dict[str, _Node]] = {}
        self._removed: set[str] = set()
        self._last = LastSaid()

    def policy(self, record: Record) -> list[Out]:
        """Take a policy over. A null changes nothing; a bad one is a dead letter, the last good one stays."""
        if record.value is None:
            return []
        try:
            policy = policies.read(record.key, record.value)
        except BadMessageError as exc:
            return [self._writer.dead(record, str(exc), record.timestamp_ms)]
        if policy.writer_epoch >= self._policy_epoch:
            self._policy_epoch, self.in_force = policy.writer_epoch, policy
        return []

    def inventory(self, record: Record) -> list[Out]:
        """Hear of a node. A null removes it: its figures go, and come again only with its inventory."""
        if record.value is None:
            return self._remove(record)
        try:
            inventory = decode(record.value, NodeInventory)
            _check_key(record, inventory.node, "NodeInventory")
        except BadMessageError as exc:
            return [self._writer.dead(record, str(exc), record.timestamp_ms)]
        self.inventories += 1
        self._removed.discard(inventory.node)
        return []

    def learn(self, records: Iterable[Record]) -> None:
        """Remember what samples tell, without answering them: what was read back at a takeover."""
        for record in records:
            try:
                sample = _sample_of(record)
                _check_amounts(sample)
            except BadMessageError:
                continue  # was a dead letter, or will be, where it is answered
            self._node(record.partition, sample.node).see(sample, self.in_force)

    def samples(self, records: Iterable[Record], now_ms: int) -> list[Out]:
        """Answer each sample once; a null is a deletion and asks nothing."""
        outs: list[Out] = []
        for record in records:
            if record.value is not None:
                outs += self._sample(record, now_ms)
        return outs

    def forget(self, partition: int) -> None:
        """The partition has moved away, and with it its nodes."""
        self._nodes.pop(partition, None)
        self._last.forget(partition)

    def silent(self, nodes: Mapping[str, int]) -> list[Out]:
        """Say of nodes that they are stale: for how many milliseconds each has been silent."""
        outs: list[Out] = []
        for partition, said in self._last.silent(nodes, self.in_force):
            outs.append(self._writer.metric(said.metric, partition))
            outs.append(self._writer.allocatable(said.allocatable, partition))
            outs.append(self._writer.score(said.score, partition))
        return outs

    def recall(self, partition: int, told: Iterable[Said]) -> dict[str, int]:
        """Take over what the partition's last owner said of nodes; returns for how long each was said to be silent."""
        known = {said.metric.node: said for said in told if said.metric.node not in self._removed}
        for said in known.values():
            self._last.recall(partition, said)
        return {node: said.metric.stale_ms for node, said in known.items()}

    def refused(self, out: Out, why: str, now_ms: int) -> list[Out]:
        """What goes out in place of a record that the log refused for its content.

        The refused record becomes a dead letter; a node whose answer it was is answered ``skipped``.
        """
        outs = [self._writer.refused(out, why, now_ms)]
        if out.answer in {"set", "keep"} and out.partition is not None:
            command = msgspec.structs.replace(
                decode(out.value, NodeCommand),
                answer="skipped",
                reason=f"the answer was refused: {why}",
                hold=[],
                evict=[],
                settings=[],
            )
            outs.append(self._writer.answer(command, out.partition))
        return outs

    def _sample(self, record: Record, now_ms: int) -> list[Out]:
        try:
            sample = _sample_of(record)
        except BadMessageError as exc:
            return [self._writer.dead(record, str(exc), now_ms)]
        try:
            _check_amounts(sample)
            return self._answered(record, sample, now_ms)
        except Exception as exc:  # noqa: BLE001 - whatever odd figures do to the arithmetic, the next record is read
            why = str(exc) or type(exc).__name__
            command = self._answerer(now_ms).blank(record, sample, answer="skipped", reason=why)
            return [self._writer.dead(record, why, now_ms), self._writer.answer(command, record.partition)]

    def _answered(self, record: Record, sample: NodeSample, now_ms: int) -> list[Out]:
        node = self._node(record.partition, sample.node)
        newer = node.see(sample, self.in_force)
        self.late_samples += not newer
        # Its own first: what an older sample carries may be kept no longer.
        pods = node.pods.get(sample.pods_revision) if sample.pods is None else sample.pods
        facts = node.facts.get(sample.facts_revision) if sample.facts is None else sample.facts
        command = self._answerer(now_ms).decided(record, sample, facts, pods)
        outs = [self._writer.answer(command, record.partition)]
        figures = None
        if newer and facts is not None and pods is not None and sample.node not in self._removed:
            figures = node.figures.due(sample, facts, pods, self.in_force)
            if figures is not None:
                outs.append(self._writer.metric(figures.metric, record.partition))
                outs.append(self._writer.allocatable(figures.allocatable, record.partition))
                score = node_score(figures.metric, figures.allocatable, sample, facts, pods, self.in_force)
                outs.append(self._writer.score(score, record.partition))
                said = Said(metric=figures.metric, allocatable=figures.allocatable, score=score, facts=facts)
                self._last.say(record.partition, said)
        if self.shadow is not None:
            metric = figures.metric if figures else None
            self.shadow.saw(Seen(record=record, sample=sample, facts=facts, pods=pods, metric=metric))
        return outs

    def _answerer(self, now_ms: int) -> Answerer:
        return Answerer(worker=self.name, policy=self.in_force, now_ms=now_ms)

    def _remove(self, record: Record) -> list[Out]:
        if record.key is None:
            return []
        node = text_of(record.key)
        self._removed.add(node)
        self._nodes.get(record.partition, {}).pop(node, None)
        self._last.drop(record.partition, node)
        if self.shadow is not None:
            self.shadow.removed(record, node)
        return self._writer.tombstones(record, node)

    def _node(self, partition: int, name: str) -> _Node:
        nodes = self._nodes.setdefault(partition, {})
        node = nodes.get(name)
        if node is None:
            node = nodes[name] = _Node()
        return node


def _sample_of(record: Record) -> NodeSample:
    sample = decode(record.value, NodeSample)
    _check_key(record, sample.node, "NodeSample")
    return sample


def _check_key(record: Record, wanted: str, kind: str) -> None:
    if record.key != wanted.encode():
        raise BadMessageError(kind, f"the record's key is {record.key!r}, not {wanted!r}")


def _check_amounts(sample: NodeSample) -> None:
    """Refuse figures that no machine has."""
    amounts = [("interval_ms", sample.interval_ms), ("seq", sample.seq)]
    amounts += [("use.cpu_milli", sample.use.cpu_milli or 0), ("use.mem_bytes", sample.use.mem_bytes or 0)]
    for use in sample.pod_use:
        amounts += [("pod_use.cpu_milli", use.cpu_milli or 0), ("pod_use.mem_bytes", use.mem_bytes or 0)]
    for name, amount in amounts:
        if not 0 <= amount <= AMOUNT_MAX:
            raise BadMessageError("NodeSample", f"{name} is {amount}, not from 0 to {AMOUNT_MAX}")
    if sample.observed_ms > TIME_MS_MAX:
        raise BadMessageError("NodeSample", f"observed_ms is {sample.observed_ms}, past the year 9999")
