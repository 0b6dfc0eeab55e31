"""Merges answered samples into windows, and publishes the figures of their nodes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from slacktide.schemas.errors import failure
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.metric import NodeMetric
from slacktide.schemas.policy import Policy
from slacktide.schemas.sample_columns_codec import fields_of
from slacktide.schemas.topics import SAMPLE
from slacktide.streams.columns.block import Block, Merging
from slacktide.streams.columns.figures import Gathered, encoded, gather, holding, worth
from slacktide.streams.columns.head import SERIAL
from slacktide.streams.columns.node_figures import Candidate, Sampled, allocatable_of, due, holds, publishing
from slacktide.streams.columns.segments import Completed, completed, segments
from slacktide.streams.decisions.prediction.mid_forecast import NO_FORECAST
from slacktide.streams.records import Out, Record, Writer, isolated, text_of
from slacktide.streams.worker.fast import Fast
from slacktide.streams.worker.node_state import WAVE, NamedSample, Node, waves
from slacktide.streams.worker.nodes import Described
from slacktide.streams.worker.one_by_one import Shadow, State
from slacktide.streams.worker.published import LastFigures, NodeFigures, node_score
from slacktide.streams.worker.reading import SoundSample

TOGETHER = 64
"""Nodes whose figures are encoded together: more of them cost memory, and no less time each."""


class Publishing:
    """Publishes the figures of a worker's nodes; ``last`` keeps what was published last."""

    def __init__(self, worker: State, last: LastFigures, fast: Fast, writer: Writer) -> None:
        self.late_samples = 0
        """Samples that were answered but not merged: repeated or late."""
        self._worker, self._last, self._fast, self._writer = worker, last, fast, writer
        self._held, self._windows, self._covering = worker.held, worker.held.windows, worker.covering
        self._held_back: set[int] = set()

    @property
    def in_force(self) -> Policy:
        """Return the policy in force."""
        return self._worker.in_force

    def hold_back(self, partition: int) -> None:
        """Publish nothing of a partition until ``publish``: its windows are being filled."""
        self._held_back.add(partition)

    def publish(self, partition: int) -> None:
        """Publish a partition's nodes with their next samples, because their windows are filled."""
        self._held_back.discard(partition)
        for node in self._held.of(partition).values():
            node.window.published = None

    def forget(self, partition: int) -> None:
        """Forget a partition that was revoked."""
        self._held_back.discard(partition)

    def figures(self, answered: Sequence[NamedSample | Block[Node]], now_ms: int, shadow: Shadow | None) -> list[Out]:
        """Merge what was answered, each node's samples in order, and publish what is due; ``shadow`` sees them, too."""
        outs: list[Out] = []
        for one in _together(answered):
            outs += self._block(one, now_ms) if isinstance(one, Block) else self._one_by_one(one, now_ms, shadow)
        return outs

    def learn(self, learned: Sequence[NamedSample | Block[Node]]) -> None:
        """Merge samples without publishing; those of each node in order."""
        for one in _together(learned):
            if isinstance(one, Block):
                merging = Merging(self._windows, one)
                for its in merging.waves(WAVE):
                    self._merged_block(merging, merging.in_time(its)[0], [])
            else:
                for wave in waves(one):
                    self.merge(wave, [])

    def _one_by_one(self, samples: Sequence[NamedSample], now_ms: int, shadow: Shadow | None) -> list[Out]:
        outs: list[Out] = []
        for wave in waves(samples):
            outs += self._published(wave, now_ms)
        if shadow is not None:
            for each in samples:
                node = each.node
                each.held_forecast = self._held.existing.forecast_of(node.partition, node.window.node)
                shadow.saw(each)
        return outs

    def merge(self, wave: Sequence[NamedSample], outs: list[Out]) -> Sequence[bool]:
        """Merge a wave and return which samples were in time. A node that fails gets a new window."""

        def failed(each: NamedSample, error: Exception) -> list[bool]:
            self._begin_anew(each.node)
            outs.append(self._writer.failed("window", each.record, error))
            return [False]

        return isolated(self._merged, wave, failed)

    def _begin_anew(self, node: Node) -> None:
        """Replace a node's window, which may be corrupt."""
        self._windows.drop(node.window)
        node.window = self._windows.window(node.window.node, node.window.window_ms)
        self._fast.forget(node.window.node)

    def _merged(self, wave: Sequence[NamedSample]) -> list[bool]:
        newer = [each.arrival(self.in_force) for each in wave if each.newer]
        merged = iter(self._windows.merge(newer))
        return [each.newer and next(merged) for each in wave]

    def _block(self, block: Block[Node], now_ms: int) -> list[Out]:
        outs: list[Out] = []
        gathered: list[Gathered] = []
        merging = Merging(self._windows, block)
        for its in merging.waves(WAVE):
            taken, late = merging.in_time(its)
            for at in late:
                self.late_samples += 1
                block.heads[at].node.too_late(block.heads[at].of.boot_id)
            merged = self._merged_block(merging, taken, outs)
            outs += self._segments([block.heads[at].node for at in merging.over(merged)])
            if merged:
                gathered += self._gather(merging, merged, outs, now_ms)
            if sum(len(one.places) for one in gathered) >= TOGETHER:
                outs += self._publish_gathered(block, gathered, now_ms)
                gathered = []
        return outs + self._publish_gathered(block, gathered, now_ms)

    def _merged_block(self, merging: Merging[Node], taken: Sequence[int], outs: list[Out]) -> Sequence[int]:

        def failed(at: int, error: Exception) -> Sequence[int]:
            node = merging.block.heads[at].node
            self._begin_anew(node)
            outs.append(self._writer.failed("window", _of_node(node), error))
            return []

        return isolated(merging.merge, taken, failed)

    def _gather(self, merging: Merging[Node], taken: Sequence[int], outs: list[Out], now_ms: int) -> list[Gathered]:
        """Gather what is to be published of the merged samples ``taken``."""
        block, republish_ms = merging.block, self._worker.republish_ms
        spoiled: dict[int, Exception] = {}

        def candidate(block: Block[Node], place: int) -> Candidate | None:
            head = block.heads[place]
            try:
                return self._candidate(head.node, block.named(place), head.facts, head.pods, head.node.described)
            except Exception as exc:  # noqa: BLE001 - one node's figures
                spoiled[place] = exc
                return None

        found = worth(self._windows, block, taken, self.in_force, republish_ms, candidate)
        outs += [self._spoiled(block.record(place), exc, now_ms) for place, exc in spoiled.items()]
        gathered = [gather(self._windows, block, found, self.in_force)] if found.places else []
        if found.places:
            publishing(self._windows, found.of, self.in_force)
            self._windows.marks.published_by[block.rows[found.places]] = block.numbers[found.places, SERIAL]
        hold = holding(self._windows, block, taken, republish_ms, self._covering.at_ms)
        self._covering.sampled((block.heads[at].partition, block.heads[at].of.node) for at in hold)
        return gathered

    def _publish_gathered(self, block: Block[Node], gathered: Sequence[Gathered], now_ms: int) -> list[Out]:
        """Encode the figures of a block's waves together: once per block costs less than once per wave."""
        outs: list[Out] = []
        for place, candidate, one in encoded(gathered, self.in_force):
            if isinstance(one, NodeMetric):
                outs += self._publish_alone(block, place, candidate, one, now_ms)
                continue
            if isinstance(one, Exception):
                outs.append(self._spoiled(block.record(place), one, now_ms))
                continue
            head = block.heads[place]
            outs += self._fast.figures(head, candidate.sample, one)
            self._last.put_written(head.partition, head.of.node, one, candidate.facts)
            self._covering.published(head.partition, head.of.node)
        return outs

    def _publish_alone(
        self, block: Block[Node], place: int, candidate: Candidate, metric: NodeMetric, now_ms: int
    ) -> list[Out]:
        head, record = block.heads[place], block.record(place)
        try:
            sample = SoundSample(**fields_of(record.value, head.uids_of))
        except Exception as exc:  # noqa: BLE001 - arrays have read only its head and numbers
            return [self._spoiled(record, exc, now_ms)]
        described = head.node.described
        each = NamedSample(record, sample, head.node, head.facts, head.pods, True, False, described, False)
        return self._records_of(each, candidate, metric, now_ms)

    def _candidate(
        self, node: Node, sample: Sampled, facts: NodeFacts, pods: Sequence[Pod], described: Described | None
    ) -> Candidate | None:
        """Return what a sample's figures are computed from; None: they must not be published."""
        existing, name = self._held.existing, node.window.node
        if node.partition in self._held_back or not existing.may_publish(node.partition, name):
            return None
        offered_by, revision = (facts, "") if described is None else (described.offering(facts), described.revision)
        forecast, held = NO_FORECAST, existing.forecast_of(node.partition, name)
        if held is not None:
            forecast = held.on(pods, offered_by, self.in_force, boot_id=sample.boot_id, at_ms=sample.observed_ms)
        return Candidate(node.window, sample, offered_by, pods, revision, node.late_of(sample.boot_id), forecast)

    def _published(self, wave: Sequence[NamedSample], now_ms: int) -> list[Out]:
        candidates: list[Candidate] = []
        of: dict[int, NamedSample] = {}
        outs: list[Out] = []
        taken: list[Node] = []
        for each, merged in zip(wave, self.merge(wave, outs), strict=True):
            node = each.node
            if not merged:
                self.late_samples += 1
                node.too_late(each.sample.boot_id)
                continue
            one = None
            try:
                if each.facts is not None and each.pods is not None:
                    one = self._candidate(node, each.sample, each.facts, each.pods, each.described)
            except Exception as exc:  # noqa: BLE001 - one node's figures
                outs.append(self._spoiled(each.record, exc, now_ms))
            candidates += [] if one is None else [one]
            of[node.window.row] = each
            taken.append(node)
        outs += self._segments(taken)

        def failed(one: Candidate, error: Exception) -> list[tuple[Candidate, NodeMetric]]:
            outs.append(self._spoiled(of[one.window.row].record, error, now_ms))
            return []

        republish_ms = self._worker.republish_ms

        def publishable(some: Sequence[Candidate]) -> list[tuple[Candidate, NodeMetric]]:
            return due(self._windows, some, self.in_force, republish_ms)

        for candidate, metric in isolated(publishable, candidates, failed):
            each = of[candidate.window.row]
            each.metric = metric
            outs += self._records_of(each, candidate, metric, now_ms)
        held = [one for one in candidates if holds(one, republish_ms)]
        self._covering.sampled((of[one.window.row].node.partition, one.window.node) for one in held)
        return outs

    def _records_of(self, each: NamedSample, candidate: Candidate, metric: NodeMetric, now_ms: int) -> list[Out]:
        partition, facts, pods = each.record.partition, candidate.facts, candidate.pods
        try:
            allocatable = allocatable_of(
                metric, facts, pods, self.in_force, candidate.inventory_revision, candidate.forecast
            )
            score = node_score(metric, allocatable, each.sample, facts, pods, self.in_force, own_facts=each.facts)
            outs = [self._writer.figures(one, partition) for one in (metric, allocatable, score)]
            names = candidate.window.names
            published = NodeFigures(metric=metric, allocatable=allocatable, score=score, facts=facts, names=names)
            self._last.put(partition, published)
            self._covering.published(partition, metric.node)
        except Exception as exc:  # noqa: BLE001 - as with an answer
            return [self._spoiled(each.record, exc, now_ms)]
        return outs

    def _spoiled(self, record: Record, error: Exception, now_ms: int) -> Out:
        """Return the dead letter of a record whose node's figures fail; those published before hold no longer."""
        self._covering.drop(record.partition, text_of(record.key or b""))
        return self._writer.dead(record, failure("figures", error), now_ms)

    def _segments(self, nodes: Sequence[Node]) -> Sequence[Out]:
        """Write each completed minute of these nodes once."""
        its = [node for node in nodes if node.partition not in self._held_back]
        if not its:
            return []
        minutes = completed(self._windows, [(node.window, node.spread_ms) for node in its])

        def failed(one: tuple[Node, range], error: Exception) -> list[Out]:
            return [self._writer.failed("segment", _of_node(one[0]), error)]

        return isolated(self._written, list(zip(its, minutes, strict=True)), failed)

    def _written(self, minutes: Sequence[tuple[Node, range]]) -> list[Out]:
        """Write the minutes of each node; the newest one carries what the node's samples name."""
        found = segments(
            self._windows,
            [Completed(node.window, number, *node.newest) for node, numbers in minutes for number in numbers],
        )
        outs: list[Out] = []
        for node, numbers in minutes:
            its = [one for one in islice(found, len(numbers)) if one is not None]
            if its:
                use = node.in_use()
                facts = {"facts_revision": use.facts_revision, "facts": use.facts} if use.facts else {}
                pods = {"pods_revision": use.pods_revision, "listed": use.pods} if use.pods else {}
                its[-1] = replace(its[-1], **facts, **pods)
            outs += [self._writer.window(one, node.partition) for one in its]
        return outs


def _together(answered: Iterable[NamedSample | Block[Node]]) -> Iterator[Sequence[NamedSample] | Block[Node]]:
    alone: list[NamedSample] = []
    for one in answered:
        if isinstance(one, NamedSample):
            alone.append(one)
            continue
        yield alone
        yield one
        alone = []
    yield alone


def _of_node(node: Node) -> Record:
    name = node.window.node.encode()
    return Record(topic=SAMPLE.name, partition=node.partition, offset=0, timestamp_ms=0, key=name, value=None)
