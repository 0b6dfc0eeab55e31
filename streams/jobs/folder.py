"""Folds all Jobs of one partition: records in, statuses out. Pure."""

from collections.abc import Iterable
from contextlib import suppress

from slacktide.schemas.codec import decode, encode
from slacktide.schemas.errors import BadMessageError, failure
from slacktide.schemas.job_pod import JobEvent
from slacktide.schemas.job_status import JobStatus
from slacktide.schemas.topics import JOB_STATUS
from slacktide.streams.jobs.fold import JobFold
from slacktide.streams.records import Out, Record, dead_letter_of_unwritten, event, letters_of_each, text_of

SOURCE = "stream"


class Folder:
    """Folds one partition, from its statuses in slacktide.job.status.v1."""

    def __init__(self, partition: int, statuses: Iterable[Record]) -> None:
        self._partition = partition
        self._folds = {uid: JobFold(status) for uid, status in statuses_of(statuses).items()}
        self._changed: set[str] = set()

    def __len__(self) -> int:
        return len(self._folds)

    def take(self, records: Iterable[Record], now_ms: int) -> list[Out]:
        """Fold records in order; return dead letters for invalid ones."""
        return letters_of_each(records, self._take, reader=SOURCE, now_ms=now_ms)

    def due(self, now_ms: int) -> list[Out]:
        """Return statuses that changed since the last call, and dead letters of those that cannot be computed."""
        outs = []
        for uid in sorted(self._changed):
            try:
                outs.append(self._status(uid))
            except Exception as exc:  # noqa: BLE001 - one Job's status: the others are published
                why = failure("write a status", exc)
                outs.append(
                    dead_letter_of_unwritten(
                        JOB_STATUS.name, self._partition, uid, writer=SOURCE, reason=why, now_ms=now_ms
                    )
                )
        self._changed.clear()
        return outs

    def _status(self, uid: str) -> Out:
        fold = self._folds[uid]
        status = fold.status()
        if fold.gone:
            del self._folds[uid]
        return event(
            JOB_STATUS.name,
            status.uid,
            None if fold.gone else encode(status),
            source=SOURCE,
            event_id=f"{status.uid}/{status.folded_to}",
            event_ms=status.observed_ms,
            partition=self._partition,
        )

    def cursor(self, position: int) -> int:
        """Return the offset from which to read events again, after all due statuses are published."""
        oldest = (fold.oldest for fold in self._folds.values())
        return min((offset for offset in oldest if offset is not None), default=position)

    def overtaken(self, statuses: Iterable[Record]) -> None:
        """Publish again the statuses that a former worker of the partition overwrote late."""
        for uid, status in statuses_of(statuses).items():
            fold = self._folds.get(uid)
            if fold is not None and status.folded_to < fold.folded_to:
                self._changed.add(uid)

    def _take(self, record: Record) -> None:
        event = decode(record.value, JobEvent)
        if text_of(record.key or b"") != event.uid:
            raise BadMessageError("JobEvent", f"the record's key is not its uid {event.uid!r}")
        fold = self._folds.get(event.uid)
        if fold is None:
            if event.spec is None and not event.gone:
                return
            fold = self._folds[event.uid] = JobFold()
        if not fold.take(event, record.offset):
            self._changed.add(event.uid)


def statuses_of(records: Iterable[Record]) -> dict[str, JobStatus]:
    """Return the last status of each Job; an invalid one is folded again."""
    found: dict[str, JobStatus] = {}
    for record in records:
        uid = text_of(record.key or b"")
        found.pop(uid, None)
        if isinstance(record.value, bytes):
            with suppress(BadMessageError):
                found[uid] = decode(record.value, JobStatus)
    return found
