"""The stream worker without Kafka: records in, records out, nothing else. Its shells feed it.

Every decodable sample is answered with one command. A command is a function of the sample, the pods
and facts that the sample names, and the policy, so that a record that comes twice is answered the
same; what a node is known by (pods, facts, window) follows only samples newer than all before them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from slacktide.schemas import policy as policies
from slacktide.schemas.codec import decode
from slacktide.schemas.command import NodeCommand
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.sample import NodeSample
from slacktide.streams.records import Out, Record, Writer, text_of
from slacktide.streams.windows.figures import Candidate, allocatable_of, due
from slacktide.streams.windows.node_window import NodeWindow
from slacktide.streams.windows.segments import (
    MINUTE_MS,
    Minute,
    minute_of,
    oldest_minute,
    restore,
    said_minute,
    said_seconds,
    segment,
)
from slacktide.streams.windows.windows import Windows
from slacktide.streams.worker.answering import Answerer
from slacktide.streams.worker.heard import Heard, Node, waves
from slacktide.streams.worker.reading import SoundSample, UnsoundError, check_key, sample_of
from slacktide.streams.worker.scores import node_score
from slacktide.streams.worker.shadow import Shadow
from slacktide.streams.worker.stale import LastSaid, Said

FILLED_AT_ONCE = 16
"""Nodes whose last minutes are filled in one step, which takes some milliseconds."""
SEGMENT_SPREAD_MS = 4_000
"""Over so long after its end a minute's segments are said, node by node: not all at once."""


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
        self._inventory_epoch = 0
        self._nodes: dict[int, dict[str, Node]] = {}
        self._removed: set[str] = set()
        self._last = LastSaid()
        self._windows = Windows()
        self._held_back: set[int] = set()
        self._unpublished: list[Heard] = []

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
        """Hear of a node. A null removes it: its figures go, and come again only with its inventory.

        What a writer of an older epoch says brings nothing back.
        """
        if record.value is None:
            return self._remove(record)
        try:
            inventory = decode(record.value, NodeInventory)
            check_key(record, inventory.node, "NodeInventory")
        except BadMessageError as exc:
            return [self._writer.dead(record, str(exc), record.timestamp_ms)]
        self.inventories += 1
        if inventory.writer_epoch >= self._inventory_epoch:
            self._inventory_epoch = inventory.writer_epoch
            self._removed.discard(inventory.node)
        return []

    def learn(self, records: Iterable[Record]) -> None:
        """Remember what samples tell, without answering them: what was read back at a takeover."""
        heard = [each for record in records if (each := self._known(record)) is not None]
        for wave in waves(heard):
            self._merge(wave)

    def fill(self, records: Iterable[Record]) -> list[Out]:
        """Take in samples that come late, mute: into what nothing covers yet. Bad ones are dead letters.

        What was answered is taken in first, and published: they may lie before it, and behind all that is there.
        """
        late = [record for record in records if record.value is not None]
        outs = self.figures(late[-1].timestamp_ms) if late else []
        heard: list[Heard] = []
        for record in late:
            try:
                heard.append(self._heard(record, sample_of(record)))
            except BadMessageError as exc:
                outs.append(self._writer.dead(record, str(exc), record.timestamp_ms))
        for wave in waves(heard):
            for each, merged in zip(wave, self._merge(wave), strict=True):
                if not merged:
                    self._windows.fill(each.node.window, each.sample)
        return outs

    def aside(self) -> Worker:
        """One that knows nothing but the policy: what it learns of older samples, in order, is filled in at once."""
        other = Worker(self.name)
        other.in_force = self.in_force
        return other

    def fill_from(self, other: Worker, partition: int, minutes: int) -> Iterator[None]:
        """Take in the last minutes that another has learned of, where nothing covers them; some nodes a step."""
        nodes = list(other._nodes.get(partition, {}).items())
        for begin in range(0, len(nodes), FILLED_AT_ONCE):
            found = []
            for name, node in nodes[begin : begin + FILLED_AT_ONCE]:
                window = self._node(partition, name).window
                newest = node.window.watermark_ms // MINUTE_MS
                each = (minute_of(other._windows, node.window, one) for one in range(newest - minutes, newest + 1))
                found += [(window, one) for one in each if one is not None]
            restore(self._windows, found)
            yield

    def restore(self, records: Iterable[Record]) -> list[Out]:
        """Take back minutes of windows that a partition's owners have said; bad ones are dead letters."""
        outs: list[Out] = []
        found: list[tuple[NodeWindow, Minute]] = []
        for record in records:
            if record.value is None:
                continue
            try:
                said = said_seconds(record.value)
                check_key(record, said.node, "NodeWindowSegment")
                node = self._node(record.partition, said.node)
                found.append((node.window, said_minute(said, record.value, node.window)))
                if not node.newest[0]:  # should some of this boot come again, it does not begin the node anew
                    node.newest = said.boot_id, -1
            except BadMessageError as exc:
                outs.append(self._writer.dead(record, str(exc), record.timestamp_ms))
        restore(self._windows, found)
        for window, its in found:
            if its.end_ms <= window.watermark_ms:  # else its samples come again, or its clock was set back since
                window.minute = max(window.minute, its.begin_ms // MINUTE_MS + 1)
        return outs

    def hold_back(self, partition: int) -> None:
        """Publish nothing of its nodes until ``publish``: their windows are being filled."""
        self._held_back.add(partition)

    def publish(self, partition: int) -> None:
        """Its windows are as full as they will be, or fuller than before: each node's next sample says so."""
        self._held_back.discard(partition)
        for node in self._nodes.get(partition, {}).values():
            node.window.told = None

    def samples(self, records: Iterable[Record], now_ms: int) -> list[Out]:
        """Answer each sample once, then publish; a null is a deletion and asks nothing."""
        return self.answers(records, now_ms) + self.figures(now_ms)

    def answers(self, records: Iterable[Record], now_ms: int) -> list[Out]:
        """Answer each sample once. What they come to is for ``figures``: a node waits for its answer, not for that."""
        outs: list[Out] = []
        answerer = Answerer(worker=self.name, policy=self.in_force, now_ms=now_ms)
        for record in records:
            if record.value is not None:
                outs += self._sample(record, answerer)
        return outs

    @property
    def unpublished(self) -> int:
        """Samples that are answered and in no window yet."""
        return len(self._unpublished)

    def figures(self, now_ms: int) -> list[Out]:
        """Take what was answered into the windows, and publish what there is to say."""
        heard, self._unpublished = self._unpublished, []
        outs: list[Out] = []
        for wave in waves(heard):
            outs += self._published(wave, now_ms)
        if self.shadow is not None:
            for each in heard:
                self.shadow.saw(each.seen())
        return outs

    def forget(self, partition: int) -> None:
        """The partition has moved away, and with it its nodes."""
        self._unpublished = [each for each in self._unpublished if each.node.partition != partition]
        for node in self._nodes.pop(partition, {}).values():
            self._windows.drop(node.window)
        self._held_back.discard(partition)
        self._last.forget(partition)

    def silent(self, nodes: Mapping[str, int]) -> list[Out]:
        """Say of nodes that they are stale: for how many milliseconds each has been silent.

        What each one's next sample comes to is said at once: until then nothing is placed there.
        """
        outs: list[Out] = []
        for partition, said in self._last.silent(nodes, self.in_force):
            outs.append(self._writer.metric(said.metric, partition))
            outs.append(self._writer.allocatable(said.allocatable, partition))
            outs.append(self._writer.score(said.score, partition))
            known = self._nodes.get(partition, {}).get(said.metric.node)
            if known is not None:
                known.window.told = None
            if self.shadow is not None:
                self.shadow.silent(partition, said, said.metric.stale_ms)
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

    def _sample(self, record: Record, answerer: Answerer) -> list[Out]:
        """Answer one sample, and keep it where a window can take it."""
        try:
            each = self._heard(record, sample_of(record))
        except UnsoundError as exc:
            return self._refused(record, exc.sample, str(exc), answerer)
        except BadMessageError as exc:
            return [self._writer.dead(record, str(exc), answerer.now_ms)]
        try:
            command = answerer.decided(record, each.sample, each.facts, each.pods)
            out = self._writer.answer(command, record.partition)
        except Exception as exc:  # noqa: BLE001 - whatever odd figures do to the arithmetic, the next record is read
            return self._refused(record, each.sample, str(exc) or type(exc).__name__, answerer)
        self._unpublished.append(each)
        return [out]

    def _refused(self, record: Record, sample: NodeSample, why: str, answerer: Answerer) -> list[Out]:
        """Lay it aside, and say so to its node."""
        command = answerer.blank(record, sample, answer="skipped", reason=why)
        return [self._writer.dead(record, why, answerer.now_ms), self._writer.answer(command, record.partition)]

    def _known(self, record: Record) -> Heard | None:
        """A sample that is not answered here; None: it was a dead letter, or will be, where it is."""
        try:
            return self._heard(record, sample_of(record))
        except BadMessageError:
            return None

    def _heard(self, record: Record, sample: SoundSample) -> Heard:
        return self._node(record.partition, sample.node).hear(record, sample)

    def _merge(self, wave: Sequence[Heard]) -> list[bool]:
        """Take a wave into its windows; which samples of it were in time."""
        newer = [each.arrival(self.in_force) for each in wave if each.newer]
        merged = iter(self._windows.merge(newer))
        return [each.newer and next(merged) for each in wave]

    def _published(self, wave: Sequence[Heard], now_ms: int) -> list[Out]:
        """Merge, then say what there is to say of those nodes."""
        candidates: list[Candidate] = []
        of: dict[int, Heard] = {}
        outs: list[Out] = []
        for each, merged in zip(wave, self._merge(wave), strict=True):
            node, sample = each.node, each.sample
            if not merged:
                self.late_samples += 1
                node.too_late(sample.boot_id)
            elif each.facts is not None and each.pods is not None and self._may_publish(node):
                late = node.late_of(sample.boot_id)
                candidates.append(Candidate(node.window, sample, each.facts, each.pods, late))
                of[node.window.row] = each
            if merged:
                outs += self._segments(node)
        for candidate, metric in due(self._windows, candidates, self.in_force):
            each = of[candidate.window.row]
            each.metric = metric
            outs += self._said(each, candidate, metric, now_ms)
        return outs

    def _may_publish(self, node: Node) -> bool:
        return node.partition not in self._held_back and node.window.node not in self._removed

    def _said(self, each: Heard, candidate: Candidate, metric: NodeMetric, now_ms: int) -> list[Out]:
        """Put the three records of a node's figures together."""
        partition, facts, pods = each.record.partition, candidate.facts, candidate.pods
        try:
            allocatable = allocatable_of(metric, facts, pods, self.in_force)
            score = node_score(metric, allocatable, candidate.sample, facts, pods, self.in_force)
            outs = [
                self._writer.metric(metric, partition),
                self._writer.allocatable(allocatable, partition),
                self._writer.score(score, partition),
            ]
        except Exception as exc:  # noqa: BLE001 - as with an answer
            return [self._writer.dead(each.record, str(exc) or type(exc).__name__, now_ms)]
        names = candidate.window.names
        self._last.say(partition, Said(metric=metric, allocatable=allocatable, score=score, facts=facts, names=names))
        return outs

    def _segments(self, node: Node) -> list[Out]:
        """Each minute of event time once, when it is over: mostly one, more after a gap or a long sample."""
        window = node.window
        over = (window.watermark_ms - zlib.crc32(window.node.encode()) % SEGMENT_SPREAD_MS) // MINUTE_MS
        if over <= window.minute or node.partition in self._held_back:
            return []
        first, window.minute = max(window.minute, oldest_minute(self._windows, window)), over
        said = (
            segment(self._windows, window, minute, boot_id=node.newest[0], seq=node.newest[1])
            for minute in range(first, over)
        )
        return [self._writer.window(one, node.partition) for one in said if one is not None]

    def _remove(self, record: Record) -> list[Out]:
        if record.key is None:
            return []
        node = text_of(record.key)
        self._removed.add(node)
        known = self._nodes.get(record.partition, {}).pop(node, None)
        if known is not None:
            self._unpublished = [each for each in self._unpublished if each.node is not known]
            self._windows.drop(known.window)
        self._last.drop(record.partition, node)
        if self.shadow is not None:
            self.shadow.removed(record, node)
        return self._writer.tombstones(record, node)

    def _node(self, partition: int, name: str) -> Node:
        nodes = self._nodes.setdefault(partition, {})
        node = nodes.get(name)
        if node is None:
            window_ms = self.in_force.colocation.metric_aggregate_duration_s * 1_000
            node = nodes[name] = Node(partition, self._windows.window(name, window_ms))
        return node
