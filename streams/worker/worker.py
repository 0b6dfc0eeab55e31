"""The stream worker without Kafka: takes records and returns records. The engine feeds it.

Every decodable sample is answered with one command. A command depends only on the sample, the pods and facts that it
names, and the policy, so a repeated record has the same answer. A node's state (pods, facts, window) follows only
samples newer than all before them. Reclaimed resources are computed from the node's inventory (``nodes``), whatever its
samples claim. State is kept only for nodes that exist, and for one agent of each (``Boots``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from slacktide.schemas import policy as policies
from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.forecast import NodePeaks
from slacktide.schemas.heartbeat import Heartbeat
from slacktide.schemas.inventory import LastWriter, NodeInventory
from slacktide.schemas.proof import PROVEN
from slacktide.schemas.topics import COMMAND, METRIC
from slacktide.streams.columns.block import Block, joined
from slacktide.streams.columns.node_figures import REPUBLISH_MS
from slacktide.streams.decisions.prediction.mid_forecast import HeldForecast
from slacktide.streams.kept import answers_of
from slacktide.streams.proofs import Judge, Unproven, by_keys
from slacktide.streams.records import FIGURES, Out, Record, Writer, isolated, place_of, text_of
from slacktide.streams.worker.fast import Fast
from slacktide.streams.worker.node_state import WAVE, Held, NamedSample, Node
from slacktide.streams.worker.nodes import OPEN_NODES_MAX, Nodes
from slacktide.streams.worker.one_by_one import Answerer, Shadow, Single
from slacktide.streams.worker.published import Covering, LastFigures, NodeFigures
from slacktide.streams.worker.publishing import Publishing
from slacktide.streams.worker.reading import check_key
from slacktide.streams.worker.takeover import Filling, Lists


class Worker:
    """Answers samples by the policy, and publishes figures. No record makes it raise.

    ``judge`` None: no keys, so no sample proves its node. ``open_nodes_max``: nodes without an inventory record that
    are accepted, if the policy allows them.
    """

    def __init__(
        self,
        name: str,
        judge: Judge | None = None,
        *,
        open_nodes_max: int = OPEN_NODES_MAX,
        republish_ms: int = REPUBLISH_MS,
    ) -> None:
        self.name, self.republish_ms = name, republish_ms
        self.policies = policies.InForce()
        """The policy in force, and why the newest record of its topic is not."""
        self.inventories = 0
        self.shadow: Shadow | None = None
        """Decides the same samples by another policy."""
        self.held = Held(Nodes(open_nodes_max))
        self.covering = Covering()
        self._windows = self.held.windows
        self._writer = Writer(f"stream/{name}")
        self._judge = judge or by_keys()
        self._unproven = Unproven(self._writer)
        self._described_by = LastWriter()
        self._last = LastFigures()
        self._unpublished: list[NamedSample | Block[Node]] = []
        self._single = Single(self, self._judge, self._writer, self._unproven, self._keep)
        self._fast = self._single.heads = Fast(name, self._single)
        self.lists = Lists(self.begin, self._single.verdict)
        self._publishing = Publishing(self, self._last, self._fast, self._writer)
        self.hold_back, self.publish = self._publishing.hold_back, self._publishing.publish
        self._filling = Filling(self, self._single, self._publishing, self._writer, self._unproven)
        self.restore = self._filling.restore

    def policy(self, record: Record) -> list[Out]:
        """Apply a policy record. A null changes nothing; a bad one becomes a dead letter, and the last good stays."""
        try:
            taken = self.policies.take(record.key, record.value, place_of(record))
        except BadMessageError as exc:
            return [self._writer.dead(record, str(exc), record.timestamp_ms)]
        if taken:
            self._fast.forget_all()
            for partition, node in self.held.follow(self.in_force.node_source):
                self._drop(partition, node)
        return []

    @property
    def in_force(self) -> policies.Policy:
        """Return the last good policy of the highest writer epoch."""
        return self.policies.policy

    def inventory(self, record: Record) -> list[Out]:
        """Apply a node's inventory. A null removes the node and its figures until its inventory is published again.

        A writer of an older epoch restores nothing.
        """
        if record.value is None:
            if record.key is None:
                return []
            node = text_of(record.key)
            self.held.existing.remove(record.partition, node)
            self._drop(record.partition, node)
            if self.shadow is not None:
                self.shadow.removed(record, node)
            return self._writer.tombstones(record, node)
        try:
            inventory = decode(record.value, NodeInventory)
            check_key(record, inventory.node, "NodeInventory")
        except BadMessageError as exc:
            return [self._writer.dead(record, str(exc), record.timestamp_ms)]
        self.inventories += 1
        if self._described_by.take(inventory):
            self.held.existing.describe(record.partition, inventory, record.value)
            if self.held.describe(record.partition, inventory.node):
                self._fast.forget(inventory.node)
        return []

    def forecasts(self, records: Iterable[Record]) -> list[Out]:
        """Apply forecast records."""
        return [out for record in records for out in self.forecast(record)]

    def forecast(self, record: Record) -> list[Out]:
        """Apply a forecast of a node's pods. A null removes it; one without proof is ignored.

        The newest of the highest boot counts, because one of an older agent may be late.
        """
        if record.value is None:
            if record.key is not None:
                self.held.existing.drop_forecasts(record.partition, text_of(record.key))
                self._fast.forecast_changed(text_of(record.key))
            return []
        if (verdict := self._single.verdict(record)) not in PROVEN:
            return self._unproven.dead(record, verdict, record.timestamp_ms)
        try:
            peaks = decode(record.value, NodePeaks)
            check_key(record, peaks.node, "NodeForecast")
        except BadMessageError as exc:
            return [self._writer.dead(record, str(exc), record.timestamp_ms)]
        if self.held.existing.hold_forecast(record.partition, peaks.node, HeldForecast.of(peaks)):
            self._fast.forecast_changed(peaks.node)
        return []

    def knows(self, partition: int, node: str) -> bool:
        """Check whether state is kept for the node."""
        return node in self.held.of(partition)

    def lost(self, partition: int, node: str) -> None:
        """Drop the state of a long silent node, unless the inventory lists it."""
        if self.held.existing.described(partition, node) is None:
            self._drop(partition, node)

    def learn(self, records: Iterable[Record]) -> list[Record]:
        """Take in samples read back at a takeover, without answering them; return those that prove their node."""
        proven = [record for record in records if self._single.verdict(record) in PROVEN]
        answerer = Answerer(worker=self.name, policy=self.in_force, now_ms=0, mute=True)

        def learned(some: Sequence[Record]) -> Sequence[None]:
            waiting, self._unpublished = self._unpublished, []
            try:
                self._fast.answers(some, answerer, self._unpublished.append)
                self._publishing.learn(self._unpublished)
            finally:
                self._unpublished = waiting
            return ()

        isolated(learned, proven, lambda *_: [])
        return proven

    def fill(self, records: Iterable[Record]) -> list[Out]:
        """Take in late samples without an answer. Bad ones become dead letters.

        Answered samples are merged and published first, because late ones may precede them.
        """
        late = [record for record in records if record.value is not None]
        outs = self.figures(late[-1].timestamp_ms) if late else []
        return outs + self._filling.fill(late)

    def aside(self) -> Worker:
        """Return an empty worker with the same policy: it learns older samples, which ``fill_from`` then merges."""
        other = Worker(self.name, self._judge)
        other.policies, other.held.existing = policies.InForce(self.in_force), self.held.existing
        return other

    def fill_from(self, other: Worker, partition: int, minutes: int) -> Iterator[None]:
        """Fill gaps with another worker's last minutes, some nodes per step."""
        return self._filling.fill_from(other.held, partition, minutes)

    @property
    def unknown_samples(self) -> int:
        """Return the number of samples of nodes that do not exist by the policy's ``node_source``."""
        return self._single.unknown_samples

    @property
    def late_samples(self) -> int:
        """Return the number of samples that were answered but not merged: repeated or late."""
        return self._publishing.late_samples

    def samples(self, records: Sequence[Record], now_ms: int) -> list[Out]:
        """Answer each sample once, then publish; a null is a deletion and has no answer."""
        return [*self.answers(records, now_ms), *self.figures(now_ms)]

    def answers(self, records: Sequence[Record], now_ms: int) -> Sequence[Out]:
        """Answer each sample once. ``figures`` publishes later: a node waits for its answer only."""
        answerer = Answerer(worker=self.name, policy=self.in_force, now_ms=now_ms)
        if self.shadow is not None:  # it decides by whole samples
            return [
                out for record in records if record.value is not None for out in self._single.alone(record, answerer)
            ]
        return self._fast.answers(records, answerer, self._unpublished.append)

    @property
    def unpublished(self) -> int:
        """Return the number of answered samples that are not merged yet."""
        return sum(len(one.values) if isinstance(one, Block) else 1 for one in self._unpublished)

    def figures(self, now_ms: int) -> list[Out]:
        """Merge what was answered into the windows, and publish what is due."""
        answered, self._unpublished = self._unpublished, []
        return self._publishing.figures(list(joined(answered, WAVE)), now_ms, self.shadow)

    def forget(self, partition: int) -> None:
        """Forget a partition that was revoked, and its nodes."""
        self._leave_out(lambda node: node.partition == partition)
        for name in self.held.of(partition):
            self._fast.forget(name)
        self.held.forget(partition)
        self._publishing.forget(partition)
        self._last.forget(partition)
        self.covering.forget(partition)
        self.held.existing.drop_forecasts(partition)

    def silent(self, nodes: Mapping[str, int]) -> list[Out]:
        """Publish nodes as stale, and again with their next sample; ``nodes``: for how many ms each has been silent."""
        outs: list[Out] = []
        for partition, node in self._last.known(nodes):
            try:
                outs += self._stale(partition, node, nodes[node])
            except Exception as exc:  # noqa: BLE001 - one node's figures: nothing is published until its next sample
                self._last.drop(partition, node)
                self.covering.drop(partition, node)
                record = Record(
                    topic=METRIC.name, partition=partition, offset=0, timestamp_ms=0, key=node.encode(), value=None
                )
                outs.append(self._writer.failed("mark as stale", record, exc))
        return outs

    def _stale(self, partition: int, node: str, silent_ms: int) -> list[Out]:
        last = self._last.stale(partition, node, silent_ms, self.in_force)
        outs = [self._writer.figures(one, partition) for one in (last.metric, last.allocatable, last.score)]
        known = self.held.of(partition).get(node)
        if known is not None:
            known.window.published = None
        self.covering.published(partition, node)
        if self.shadow is not None:
            self.shadow.silent(partition, last, silent_ms)
        return outs

    def heartbeats(
        self, partitions: Iterable[int], epoch: int, stale: Container[str], *, ticked_ms: int, now_ms: int
    ) -> list[Out]:
        """Cover the nodes whose published figures are valid.

        ``epoch``: in which the worker owns the partitions. ``ticked_ms``: by its monotonic clock. ``now_ms``: UTC
        epoch.
        """
        outs: list[Out] = []
        for partition in partitions:
            nodes = self.covering.covered(partition, stale)
            beat = Heartbeat(worker=self.name, epoch=epoch, ticked_ms=ticked_ms, nodes=nodes)
            outs += self._writer.heartbeats(beat, partition, now_ms)
        return outs

    def recall(self, partition: int, published: Iterable[NodeFigures]) -> dict[str, int]:
        """Adopt what the partition's previous owner published; return how long each node had been silent."""
        existing = self.held.existing
        known = {last.metric.node: last for last in published if existing.may_publish(partition, last.metric.node)}
        for node, last in list(known.items()):
            try:
                self._last.recall(partition, last)
            except Exception:  # noqa: BLE001 - figures that cannot be kept are unknown
                del known[node]
        return {node: last.metric.stale_ms for node, last in known.items()}

    def refused(self, out: Out, why: str, now_ms: int) -> list[Out]:
        """Return what replaces a record that Kafka refused for its content.

        It becomes a dead letter; if it was an answer, its nodes are answered ``skipped``.
        """
        outs = [self._writer.refused(out, why, now_ms)]
        if out.topic in FIGURES and out.partition is not None and out.key is not None:
            self.covering.drop(out.partition, text_of(out.key))
        if out.topic != COMMAND.name or out.partition is None:
            return outs
        for command in answers_of(out):
            if command.answer == "skipped":
                continue
            skipped = msgspec.structs.replace(
                command, answer="skipped", reason=f"the answer was refused: {why}", hold=[], evict=[], settings=[]
            )
            outs.append(self._writer.answer(skipped, out.partition))
        return outs

    def crashed(self, record: Record, now_ms: int, why: str) -> Out:
        """Write a dead letter for a record without reading it."""
        return self._writer.dead(record, why, now_ms)

    def _drop(self, partition: int, name: str) -> None:
        known = self.held.drop(partition, name)
        if known is not None:
            self._fast.forget(name)
            self._leave_out(lambda node: node is known)
        self._last.drop(partition, name)
        self.covering.drop(partition, name)

    def _keep(self, each: NamedSample) -> None:
        self._unpublished.append(each)

    def _leave_out(self, gone: Callable[[Node], bool]) -> None:
        kept: list[NamedSample | Block[Node]] = []
        for one in self._unpublished:
            if isinstance(one, Block):
                left = one.without(gone)
                kept += [left] if left.heads else []
            elif not gone(one.node):
                kept.append(one)
        self._unpublished = kept

    def begin(self, partition: int, name: str) -> Node | str:
        """Return a node's state, or the reason why there is none."""
        return self.held.begin(partition, name, self.in_force.colocation.metric_aggregate_duration_s * 1_000)
