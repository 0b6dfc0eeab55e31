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
    TICK,
)
from slacktide.streams.analysis.replay.answers import Answers
from slacktide.streams.analysis.replay.figures import EVER_MS, Difference, Figures
from slacktide.streams.analysis.replay.policies import Policies, Run, Unsettled
from slacktide.streams.records import Record, text_of

TURN = 2_000
"""Samples that the worker decides at once: a twentieth of them cost it twice as much each."""
BATCH = 256
"""Samples whose answers are compared at once."""
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

        ``parts``: at least one, without common partitions. ``kept``: limit for the listed differences.
        """
        differences = sorted((found for part in parts for found in part.differences), key=lambda found: found.when)
        names = ("samples", "nodes", "ticks", "takeovers", "by_guard", "unanswered", "waiting", "different", "unproven")
        sums = {name: sum(getattr(part, name) for part in parts) for name in names}
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

        ``policies``: of the trace. ``since_ms``: earlier samples serve as history. ``nodes``: only these; empty: all.
        ``kept``: limit for the listed differences; all are counted.
        """
        self._kept, self._policies = kept, policies
        self._run = Run(policies, since_ms, nodes)
        self._unsettled = Unsettled()
        self._answers = Answers(policies, self._unsettled, self._report)
        self._figures = Figures(policies, self._unsettled, self._report)
        self._differences: list[Difference] = []
        self._different = 0
        self._counts: Counter[str] = Counter()
        self._samples: list[Record] = []
        """Samples for the next turn: all before ``since_ms``, or none."""
        self._turn: list[Record] = []
        """These, and the recorded answers and figures, in order."""
        self._batch: list[tuple[Record, bytes | None]] = []
        """Samples of the turn with their answers, for the next batch."""
        self._nodes: set[bytes | None] = set()

    def take(self, record: Record) -> None:
        """Add the next record."""
        if not self._run.covers(record) and record.topic != TICK.name:
            return
        match record.topic:
            case SAMPLE.name:
                self._sample(record)
            case COMMAND.name | METRIC.name | ALLOCATABLE.name if not self._run.early(record):
                self._turn.append(record)
            case INVENTORY.name | FORECAST.name:
                self._end_turn()
                self._described(record)
            case TICK.name:
                self._counts["ticks"] += 1
            case OUTCOME.name:
                with suppress(BadMessageError):  # reported by the readers of outcomes
                    self._counts["by guard"] += decode(record.value, NodeOutcome).origin == "guard"

    def finish(self) -> Result:
        """End the run."""
        self._end_turn()
        self._answers.finish()
        self._figures.advance(EVER_MS, self._run.changed_ms)
        counts = self._answers.counts
        return Result(
            since_ms=self._run.first_ms,
            until_ms=self._run.last_ms,
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
        samples, now_ms = self._samples, record.timestamp_ms
        differs = bool(samples) and self._run.early(samples[0]) != self._run.early(record)
        if differs or self._run.due(now_ms):
            self._end_turn()
            self._run.advance(now_ms)
        elif len(samples) == TURN:
            self._decide()
        self._samples.append(record)
        self._turn.append(record)

    def _end_turn(self) -> None:
        """Decide and compare everything up to here: the worker's inputs change, or the span begins."""
        self._decide()
        self._hand_over()

    def _decide(self) -> None:
        """Let the worker decide the turn's samples; then compare the turn in order."""
        samples, self._samples = self._samples, []
        turn, self._turn = self._turn, []
        answers = iter(self._decided(samples) if samples else ())
        for record in turn:
            if record.topic == COMMAND.name:
                self._answers.command(record)
            elif record.topic == SAMPLE.name:
                self._add(record, next(answers))
            else:
                self._figures.recorded(record)

    def _decided(self, samples: Sequence[Record]) -> Sequence[bytes | None]:
        """Return the worker's answers; note its figures."""
        now_ms = samples[-1].timestamp_ms
        if self._run.early(samples[0]):
            self._run.worker.learn(samples)
            return [None] * len(samples)
        answers, outs = self._run.decided(samples, now_ms)
        for out in outs:
            if out.topic in {METRIC.name, ALLOCATABLE.name}:
                self._figures.published(out, now_ms)
        return answers

    def _add(self, record: Record, answer: bytes | None) -> None:
        batch = self._batch
        if len(batch) == BATCH or (batch and record.timestamp_ms > batch[0][0].timestamp_ms + BATCH_MS):
            self._hand_over()
        self._unsettled.sample(record)
        self._batch.append((record, answer))

    def _hand_over(self) -> None:
        """Compare the answers of a batch."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        early = self._run.early(batch[0][0])
        for record, answer in batch:
            self._answers.remember(record)
            if not early:
                self._answers.sample(record, answer)
                self._nodes.add(record.key)
        if not early:
            last_ms = batch[-1][0].timestamp_ms
            self._run.counted(batch[0][0].timestamp_ms, last_ms)
            self._figures.advance(last_ms, self._run.changed_ms)
            self._counts["samples"] += len(batch)

    def _described(self, record: Record) -> None:
        if record.topic == FORECAST.name:
            self._run.worker.forecast(record)
            self._unsettled.forecast_changed(text_of(record.key or b""), record.timestamp_ms)
            return
        self._run.worker.inventory(record)
        if record.value is None and record.key is not None:
            self._unsettled.removed(text_of(record.key), record.timestamp_ms)
        elif record.value is not None:
            with suppress(BadMessageError):
                inventory = decode(record.value, NodeInventory)
                self._unsettled.described(inventory.node, inventory.revision, record.timestamp_ms)

    def _report(self, found: Difference) -> None:
        self._different += 1
        insort(self._differences, found, key=lambda one: one.when)
        del self._differences[self._kept :]
