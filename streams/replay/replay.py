"""Replays a trace through the worker, and compares its answers with the recorded ones."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from slacktide.schemas.codec import decode
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import NodeInventory
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.topics import (
    ALLOCATABLE,
    COMMAND,
    FORECAST,
    INVENTORY,
    METRIC,
    OUTCOME,
    SAMPLE,
    SAMPLE_COLUMNS,
    TICK,
)
from slacktide.streams.proofs import Believes
from slacktide.streams.records import Out, Record, text_of
from slacktide.streams.replay.answers import Answers, Named, named
from slacktide.streams.replay.difference import Difference
from slacktide.streams.replay.figures import EVER_MS, Figures
from slacktide.streams.replay.policies import Following, Policies
from slacktide.streams.replay.unsettled import Unsettled
from slacktide.streams.worker import Worker

BATCH = 256
"""Samples per batch: single ones cost several times as much."""
BATCH_MS = 5_000
"""Time span of a batch; longer ones would hide takeovers."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay."""

    since_ms: int | None
    """The times of the first and last answered sample; None: none."""
    until_ms: int | None
    samples: int
    nodes: int
    policies: int
    """Number of distinct policies, in order."""
    ticks: int
    takeovers: int
    by_guard: int
    """Outcomes decided by the nodes' guards."""
    compares_from_ms: dict[str, int]
    """The start of the comparison by node."""
    commands: dict[str, int]
    figures: dict[str, int]
    unanswered: int
    waiting: int
    """Unanswered samples at the end of partitions."""
    different: int
    differences: list[Difference]
    """The first differences, by time."""
    unproven: int = 0
    """Samples left out because their proof was rejected."""

    @classmethod
    def of(cls, parts: Sequence[Result], kept: int) -> Result:
        """Combine the results of partitions.

        Args:
            parts: at least one, without common partitions.
            kept: limit for the listed differences.
        """
        differences = sorted((found for part in parts for found in part.differences), key=lambda found: found.when)
        sums = {
            name: sum(getattr(part, name) for part in parts)
            for name in (
                "samples",
                "nodes",
                "ticks",
                "takeovers",
                "by_guard",
                "unanswered",
                "waiting",
                "different",
                "unproven",
            )
        }
        return cls(
            since_ms=min((part.since_ms for part in parts if part.since_ms is not None), default=None),
            until_ms=max((part.until_ms for part in parts if part.until_ms is not None), default=None),
            policies=parts[0].policies,
            compares_from_ms={node: ms for part in parts for node, ms in part.compares_from_ms.items()},
            commands=dict(sum((Counter(part.commands) for part in parts), Counter())),
            figures=dict(sum((Counter(part.figures) for part in parts), Counter())),
            differences=differences[:kept],
            **sums,
        )

    @property
    def compared(self) -> int:
        """Return the number of compared records."""
        return self.different + sum(
            number
            for counts in (self.commands, self.figures)
            for how, number in counts.items()
            if how.startswith("equal")
        )

    @property
    def equal(self) -> bool:
        """Return whether records were compared and all were equal."""
        return self.compared > 0 and not self.different


class Replay:
    """One run over a trace."""

    def __init__(self, policies: Policies, *, since_ms: int = 0, nodes: Iterable[str] = (), kept: int = 10) -> None:
        """Create a run.

        Args:
            policies: of the trace.
            since_ms: earlier samples serve as history.
            nodes: only these; empty: all.
            kept: limit for the listed differences; all are counted.
        """
        self._since_ms = since_ms
        self._keys = {node.encode() for node in nodes}
        self._kept = kept
        self._policies = policies
        self._following = Following(policies, Worker("replay", Believes()))
        self._unsettled = Unsettled()
        self._answers = Answers(policies, self._unsettled, self._report)
        self._figures = Figures(policies, self._unsettled, self._report)
        self._differences: list[Difference] = []
        self._different = 0
        self._counts: Counter[str] = Counter()
        self._batch: list[Record] = []
        """Samples for the next batch: all before ``since_ms``, or none."""
        self._nodes: set[bytes | None] = set()
        self._first_ms: int | None = None
        self._last_ms: int | None = None

    def take(self, record: Record) -> None:
        """Add the next record."""
        if self._keys and record.key not in self._keys and record.topic != TICK.name:
            return
        match record.topic:
            case SAMPLE.name | SAMPLE_COLUMNS.name:
                self._sample(record)
            case COMMAND.name if record.timestamp_ms >= self._since_ms:
                self._answers.command(record)
            case METRIC.name | ALLOCATABLE.name if record.timestamp_ms >= self._since_ms:
                self._figures.recorded(record)
            case INVENTORY.name | FORECAST.name:
                self._hand_over()
                self._described(record)
            case TICK.name:
                self._counts["ticks"] += 1
            case OUTCOME.name:
                self._outcome(record)

    def finish(self) -> Result:
        """End the run."""
        self._hand_over()
        self._answers.finish()
        self._figures.advance(EVER_MS, self._following.changed_ms)
        counts = self._answers.counts
        return Result(
            since_ms=self._first_ms,
            until_ms=self._last_ms,
            samples=self._counts["samples"],
            nodes=len(self._nodes),
            policies=len(self._policies),
            ticks=self._counts["ticks"],
            takeovers=counts.pop("takeovers", 0),
            by_guard=self._counts["by guard"],
            compares_from_ms=self._answers.compared_from_ms,
            unanswered=counts.pop("samples unanswered", 0),
            waiting=counts.pop("samples not answered yet", 0),
            commands=dict(+counts),
            figures=dict(+self._figures.counts),
            different=self._different,
            differences=self._differences,
        )

    def _sample(self, record: Record) -> None:
        now_ms = record.timestamp_ms
        differs = bool(self._batch) and self._early(self._batch[0]) != self._early(record)
        full = len(self._batch) == BATCH or (self._batch and now_ms > self._batch[0].timestamp_ms + BATCH_MS)
        if differs or full or self._following.due(now_ms):
            self._hand_over()
        self._following.advance(now_ms)
        self._unsettled.sample(record)
        self._batch.append(record)

    def _early(self, record: Record) -> bool:
        return record.timestamp_ms < self._since_ms

    def _hand_over(self) -> None:
        """Let the worker decide the batch, and compare its answers."""
        records, self._batch = self._batch, []
        if records and self._early(records[0]):
            self._following.worker.learn(records)
            for record in records:
                self._answers.remember(record)
        elif records:
            self._answered(records)

    def _answered(self, records: Sequence[Record]) -> None:
        now_ms = records[-1].timestamp_ms
        answers: dict[tuple[str, int, int], tuple[Named, Out]] = {}
        for out in self._following.worker.samples(records, now_ms):
            if out.topic == COMMAND.name and out.value is not None:
                its = named(out.value)
                if its.sample is not None:
                    answers[its.sample.topic, its.sample.partition, its.sample.offset] = its, out
            elif out.topic in {METRIC.name, ALLOCATABLE.name}:
                self._figures.published(out, now_ms)
        for record in records:
            self._answers.remember(record)
            self._answers.sample(record, answers.get((*record.place, record.offset)))
            self._nodes.add(record.key)
        self._figures.advance(now_ms, self._following.changed_ms)
        self._counts["samples"] += len(records)
        self._first_ms = records[0].timestamp_ms if self._first_ms is None else self._first_ms
        self._last_ms = now_ms

    def _described(self, record: Record) -> None:
        if record.topic == FORECAST.name:
            self._following.worker.forecast(record)
            self._unsettled.forecast_changed(text_of(record.key or b""), record.timestamp_ms)
            return
        self._following.worker.inventory(record)
        if record.value is None and record.key is not None:
            self._unsettled.removed(text_of(record.key), record.timestamp_ms)
        elif record.value is not None:
            with suppress(BadMessageError):
                inventory = decode(record.value, NodeInventory)
                self._unsettled.described(inventory.node, inventory.revision, record.timestamp_ms)

    def _outcome(self, record: Record) -> None:
        try:
            outcome = decode(record.value, NodeOutcome)
        except BadMessageError:
            return  # reported by the readers of outcomes
        self._counts["by guard"] += outcome.origin == "guard"

    def _report(self, found: Difference) -> None:
        self._different += 1
        insort(self._differences, found, key=lambda one: one.when)
        del self._differences[self._kept :]
