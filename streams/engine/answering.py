"""Answers fetched samples: reads back what precedes them at a takeover, answers, and writes the answers."""

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from slacktide.schemas.errors import LogError, failure
from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.topics import SAMPLE, WINDOW
from slacktide.streams.engine import metrics
from slacktide.streams.engine.quarantine import Quarantine, survives
from slacktide.streams.engine.rebuilding import Rebuilding
from slacktide.streams.engine.ticking import Liveness, Ticking
from slacktide.streams.engine.writing import Figures, Writing
from slacktide.streams.kafka import History
from slacktide.streams.records import Place, Record
from slacktide.streams.rendering import RenderedAnswers
from slacktide.streams.taken import Records
from slacktide.streams.worker import Worker
from slacktide.streams.worker.takeover import Lists

log = logging.getLogger(__name__)

READ_BACK_MS = 20_000
"""Samples this old are read into the live windows before the first answer."""
READ_BACK_RECORDS_MAX = 50_000
"""Limits them to 20 s of 2,500 nodes in one partition, because all are in memory at once."""
KEPT_MS = SAMPLE.retention_ms or 0
COPY_S = 10.0
"""For a copy of this process to answer suspected records. Heartbeats to the group go on meanwhile."""
_OWNER = f"{os.getpid()}-{os.urandom(6).hex()}"
"""This process, in notes on committed offsets."""


class Answering:
    """Answers the samples of a session's partitions.

    ``rebuilding`` fills the windows of partitions that were taken over, ``ticking`` learns which nodes send samples.
    ``now_ms``: wall clock, UTC epoch milliseconds.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        history: History,
        rebuilding: Rebuilding,
        ticking: Ticking,
        writing: Writing,
        figures: Figures,
        liveness: Liveness,
        now_ms: Callable[[], int],
    ) -> None:
        self._worker, self._now_ms = worker, now_ms
        self._history, self._rebuilding, self._ticking = history, rebuilding, ticking
        self._writing, self._figures, self._liveness = writing, figures, liveness
        self.quarantine = Quarantine(_OWNER)
        """Knows the records that may have crashed the last owner."""
        self._next: dict[Place, int] = {}
        self._unknown_samples = worker.unknown_samples

    @property
    def positions(self) -> dict[Place, int]:
        """Return the next offset to answer, by place."""
        return dict(self._next)

    def keep(self, places: Collection[Place]) -> None:
        """Forget all other places: the group assigned them to other workers."""
        partitions = {place.partition for place in places}
        for place in self._next.keys() - places:
            del self._next[place]
            self.quarantine.forget(place)
            self._rebuilding.forget(place)
            if place.partition not in partitions:
                self._worker.forget(place.partition)
            metrics.gone(place)

    async def answer(
        self, batches: Mapping[Place, Sequence[Record]], ends: Mapping[Place, int | None]
    ) -> dict[Place, int]:
        """Answer fetched samples; return the next offset of each place, once Kafka has acknowledged all answers.

        ``batches``: by place, in order. ``ends``: the end offset by place, if known. Raises LogError if a write or a
        read at a takeover failed, or the process paused so long that it may have lost its partitions.
        """
        self._liveness.check_awake()
        some = {place: Records.of(records) for place, records in batches.items() if records}
        if fresh := {place: records[0] for place, records in some.items() if place not in self._next}:
            await self.quarantine.take_over(fresh)
        for place, records in some.items():
            if place not in self._next or records.offsets[0] > self._next[place]:
                await self._take_over(place, records)
        suspects = {place: count for place, count in (await self._suspects(some)).items() if count}
        for place, count in suspects.items():
            await self._answer_one_by_one(some[place][:count])
        # All at once: samples share the fixed cost of a turn.
        await self._answer_together(some | {place: some[place][count:] for place, count in suspects.items()})
        done = {place: records.offsets[-1] + 1 for place, records in some.items()}
        self._report(some, {place: (ends.get(place) or position) - position for place, position in done.items()})
        if done:
            self._liveness.answered()
        return done

    async def _answer_together(self, batches: Mapping[Place, Records]) -> None:
        outs = self._worker.answers(Records.joined(batches.values()), self._now_ms())
        nodes = outs.nodes if isinstance(outs, RenderedAnswers) else {out.key for out in outs if out.sign_of_life}
        for place, records in batches.items():
            if records:
                self._ticking.answered(place, records, nodes)
                self.quarantine.answered(place, records.times_ms[-1])
                self._next[place] = records.offsets[-1] + 1
        self._liveness.check_awake()
        await self._writing.write_now(outs)

    async def _suspects(self, batches: Mapping[Place, Records]) -> dict[Place, int]:
        """Return how many of each place's first records must be answered one by one.

        Each of those costs a commit, and there may be a thousand. So after a first crash, a fork answers all suspected
        records; if it survives, they are no longer suspected.
        """
        found = {place: self.quarantine.suspects(place, records) for place, records in batches.items()}
        first = {place: count for place, count in found.items() if count and not self.quarantine.again(place)}
        suspects = [record for place, count in first.items() for record in batches[place][:count]]

        def answer_in_copy() -> None:
            self._worker.answers(suspects, self._now_ms())
            self._worker.figures(self._now_ms())

        if suspects:
            if await survives(answer_in_copy, COPY_S):
                return found | dict.fromkeys(first, 0)
            log.error("a copy of this process crashed at records of a crashed owner; they are answered one by one",
                      extra={"records": len(suspects)})  # fmt: skip
        return found

    async def _answer_one_by_one(self, suspects: Sequence[Record]) -> None:
        """Answer one by one the records on which the partition's last owner may have crashed."""
        for record in suspects:
            self._liveness.check_awake()
            if self.quarantine.condemned(record):
                await self._lay_aside(record, "two workers crashed while they answered it")
                continue
            await self.quarantine.trying(record)
            try:
                await self._answer_together({record.place: Records.of([record])})
                await self._figures.publish()
            except LogError:
                raise
            except Exception as exc:  # noqa: BLE001 - for the second time: it ended the last owner, or its fork
                await self._lay_aside(record, failure("answer", exc))
        if suspects:
            await self.quarantine.settle({suspects[-1].place: suspects[-1].offset + 1})

    async def _lay_aside(self, record: Record, why: str) -> None:
        log.error("a record has ended two workers; it becomes a dead letter: %s", why, extra=_place(record))
        await self._writing.write([self._worker.crashed(record, self._now_ms(), why)])
        self._next[record.place] = record.offset + 1

    async def _take_over(self, place: Place, coming: Sequence[Record]) -> None:
        """Read back what precedes records that do not follow the last ones, and have their windows filled."""
        first, before = coming[0], list[Record]()
        if self.quarantine.bare(place):
            if place not in self._next:
                log.error("the owners of a partition crash repeatedly; taking it over without history",
                          extra=_place(first))  # fmt: skip
            return
        now_ms = self._now_ms()
        if not now_ms - KEPT_MS <= first.timestamp_ms <= now_ms:
            # The producer's clock is wrong (CreateTime): no history can be found from that time.
            first = msgspec.structs.replace(first, timestamp_ms=now_ms)
        if first.offset > self._next.get(place, 0):
            before = await self._history.span(
                *place,
                before=first.offset,
                since_ms=first.timestamp_ms - READ_BACK_MS,
                most=READ_BACK_RECORDS_MAX,
            )
            await read_lists(self._history, self._worker.lists, place, before, [first, *coming[1:]])
            self._ticking.learned(place, self._worker.learn(before))
            metrics.READ_BACK.inc(len(before))
            log.info("a partition's history was read", extra={**place._asdict(), "samples": len(before)})
        if place not in self._next:
            self._rebuilding.take_over(place, first, before)

    def _report(self, batches: Mapping[Place, Records], lags: Mapping[Place, int]) -> None:
        """Update the metrics; ``lags``: by place, how many records wait."""
        metrics.SAMPLES.inc(sum(len(records) for records in batches.values()))
        metrics.LATE_SAMPLES.set(self._worker.late_samples)
        metrics.UNKNOWN_SAMPLES.inc(self._worker.unknown_samples - self._unknown_samples)
        self._unknown_samples = self._worker.unknown_samples
        for place, records in lags.items():
            age_s = max(0.0, (self._now_ms() - batches[place].times_ms[-1]) / 1_000)
            metrics.lag(place, max(0, records), age_s if records > 0 else 0.0)


def _place(record: Record) -> dict[str, object]:
    return {"topic": record.topic, "partition": record.partition, "offset": record.offset}


SEARCHED_AT_ONCE, SEARCHED_MAX = 1_000, 5_000
"""Earlier samples per partition, 100 nodes for 50 s. A node without a list is ``skipped``, and sends a keyframe."""


async def read_lists(
    history: History, lists: Lists, place: Place, before: Sequence[Record], coming: Sequence[Record]
) -> None:
    """Read the facts and pod lists that samples of a partition refer to: ``before`` in order, and ``coming``.

    Most are in segments. A list that changed after its node's segment is in a later sample. These are searched, newest
    first, only if a list is missing. Raises LogError if Kafka is unavailable.
    """
    first = coming[0]
    since_ms = first.timestamp_ms - LISTED_MS
    lists.adopt(reversed(before))
    samples = [*before, *coming]
    if not lists.lacking(samples):
        return
    segments = await history.span(WINDOW.name, place.partition, before=None, since_ms=since_ms)
    lists.adopt(reversed(segments))
    searched, lacking = 0, lists.lacking(samples)
    if lacking:
        oldest = samples[0].offset
        older = history.back(*place, before=oldest, since_ms=since_ms, at_once=SEARCHED_AT_ONCE)
        async for some in older:
            lists.adopt(some)
            searched += len(some)
            lacking = lists.lacking(samples)
            if not lacking or searched >= SEARCHED_MAX:
                break
        await older.aclose()
    log.info(
        "lists read back",
        extra={**place._asdict(), "segments": len(segments), "searched": searched, "lacking": len(lacking)},
    )
