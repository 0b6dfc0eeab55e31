"""Keeps a record that crashes a worker, or makes it raise, from ending the next one.

Each committed offset carries a note with the owner of the partition. The owner clears the note when it stops or gives
the partition back, but not if it ends by an error. A note that is found at a takeover shows that its owner crashed. The
new owner first decides the suspected records in a forked process. If the fork crashes, or owners crash repeatedly, it
decides them one by one, each after a commit that names the record (``trying``). A record that raises then, or that a
new owner finds as ``trying``, has ended two processes: it becomes a dead letter. If owners crash repeatedly without
such a record, the history must be the cause: the third owner takes over without history. The embedded broker keeps no
notes; there, only the errors of a single record or node are isolated.
"""

import asyncio
import logging
import math
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from slacktide.streams.records import Place, Record

log = logging.getLogger(__name__)

Marked = Mapping[Place, tuple[int, str]]
"""By partition, a committed offset and its note."""

SUSPECT_MS = 2_000
"""A worker commits each second, so it worked on records appended within this time after its commit."""
CRASHES_MAX = 2
"""After this many consecutive crashes the history is skipped. Each crash widens the suspected span by ``WIDER``."""
WIDER = 4
TENURE_S = 60.0
"""After this time on a partition, a crash is not caused by what the owner found there."""
_FORM = "slacktide-1"


class Offsets(Protocol):
    """The committed offsets of the consumer group."""

    async def commit_marked(self, offsets: Marked) -> bool:
        """Commit now; False: the group is rebalancing, or the broker is unavailable."""

    async def notes(self, places: Collection[Place]) -> Marked:
        """Return committed offsets with notes; omit partitions without a commit."""


class Note(NamedTuple):
    """The metadata of a committed offset."""

    kind: str
    """``running``, or ``trying``: the record at this offset is being decided alone."""
    owner: str
    reached_ms: int
    """Append time of the newest decided record."""
    crashes: int
    """Consecutive crashes before this owner."""

    @property
    def text(self) -> str:
        """Return the note as it is committed."""
        return f"{_FORM} {self.kind} {self.owner} {self.reached_ms} {self.crashes}"


def note_of(text: str) -> Note | None:
    """Parse a note; None: there is none, or it has another form."""
    form, *parts = text.split(" ")
    if form != _FORM or len(parts) != len(Note._fields):
        return None
    kind, owner, reached_ms, crashes = parts
    if not (reached_ms.isdigit() and crashes.isdigit()):
        return None
    return Note(kind, owner, int(reached_ms), int(crashes))


@dataclass(slots=True)
class _Tenure:
    """The time of this owner on a partition."""

    taken_s: float
    reached_ms: int
    """Append time of the newest decided record."""
    crashes: int = 0
    suspected_ms: int = -1
    """Append time up to which records are decided alone."""
    condemned: int = -1
    """Offset of the record that has crashed two workers."""


_UNKNOWN = _Tenure(math.inf, 0)


class Quarantine:
    """The quarantine of one session; ``owner``: unique name of this process."""

    def __init__(self, owner: str) -> None:
        self.offsets: Offsets | None = None
        """Set once the group is joined."""
        self._owner = owner
        self._tenures: dict[Place, _Tenure] = {}

    async def take_over(self, firsts: Mapping[Place, Record]) -> None:
        """Read the notes of these partitions, and note this process as their owner.

        ``firsts``: by partition, the first record to decide.
        """
        if self.offsets is None:
            return
        now_s = asyncio.get_running_loop().time()
        found = await self.offsets.notes(firsts)
        for place, first in firsts.items():
            self._tenures[place] = _Tenure(now_s, first.timestamp_ms)
            offset, text = found.get(place, (first.offset, ""))
            note = note_of(text)
            if note is None or note.owner == self._owner:
                continue
            tenure = self._tenures[place]
            tenure.crashes = note.crashes + 1
            tenure.suspected_ms = note.reached_ms + SUSPECT_MS * WIDER ** min(note.crashes, 8)
            if note.kind == "trying":
                tenure.condemned = offset
            log.warning(
                "a partition's last owner has crashed; the records that it may have worked on are suspected",
                extra={**place._asdict(), "offset": offset, "crashes": tenure.crashes},
            )
        await self.offsets.commit_marked(self.marked({place: first.offset for place, first in firsts.items()}))

    def bare(self, place: Place) -> bool:
        """Check whether to skip history: its owners crashed before they decided one record alone."""
        return self._of(place).crashes > CRASHES_MAX

    def again(self, place: Place) -> bool:
        """Check whether several owners in a row crashed: records are then decided one by one without a fork."""
        return self._of(place).crashes > 1

    def suspects(self, place: Place, records: Sequence[Record]) -> int:
        """Return how many of the records, from the first on, must be decided alone."""
        tenure = self._of(place)
        if tenure.suspected_ms < 0:
            return 0
        count = next((at for at, one in enumerate(records) if one.timestamp_ms > tenure.suspected_ms), len(records))
        if count < len(records):
            tenure.suspected_ms = -1
        return count

    def condemned(self, record: Record) -> bool:
        """Check whether the record has crashed two workers."""
        return self._of(record.place).condemned == record.offset

    async def trying(self, record: Record) -> None:
        """Commit that this record is being decided."""
        if self.offsets is not None:
            tenure = self._tenures[record.place]
            note = Note("trying", self._owner, tenure.reached_ms, tenure.crashes)
            await self.offsets.commit_marked({record.place: (record.offset, note.text)})

    async def settle(self, offsets: Mapping[Place, int]) -> None:
        """Commit that the records tried alone are decided."""
        if self.offsets is not None:
            await self.offsets.commit_marked(self.marked(offsets))

    def answered(self, place: Place, last_ms: int) -> None:
        """Note the append time of the newest decided record of a partition."""
        self._tenures.setdefault(place, replace(_UNKNOWN)).reached_ms = last_ms

    def marked(self, offsets: Mapping[Place, int]) -> Marked:
        """Return offsets to commit, each with its note."""
        now_s, found = asyncio.get_running_loop().time(), dict[Place, tuple[int, str]]()
        for place, offset in offsets.items():
            tenure = self._of(place)
            crashes = 0 if now_s - tenure.taken_s >= TENURE_S else tenure.crashes
            found[place] = offset, Note("running", self._owner, tenure.reached_ms, crashes).text
        return found

    def forget(self, place: Place) -> None:
        """Forget a revoked partition."""
        self._tenures.pop(place, None)

    def _of(self, place: Place) -> _Tenure:
        return self._tenures.get(place, _UNKNOWN)


async def survives(work: Callable[[], object], within_s: float) -> bool:
    """Run work in a fork, and return whether the fork survives it.

    The fork shares no memory with this process. The work must not write to a socket or file. An exception counts as a
    crash. A fork that exceeds ``within_s`` is killed, which counts as a crash.
    """
    copy = os.fork()
    if not copy:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            logging.disable(logging.CRITICAL)
            work()
            code = 0
        finally:
            os._exit(code)  # without handlers and flushes, which belong to the parent
    ended = asyncio.create_task(asyncio.to_thread(os.waitpid, copy, 0))
    try:
        await asyncio.wait([ended], timeout=within_s)
    finally:
        if not ended.done():
            os.kill(copy, signal.SIGKILL)
    _, status = await ended
    return os.waitstatus_to_exitcode(status) == 0
