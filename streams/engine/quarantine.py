"""Keeps a record that crashes a worker from crashing the next one.

Each committed offset carries a note with the owner of the partition. The owner clears the note when it stops or gives
the partition back. A note that is found at a takeover shows that its owner crashed. The new owner first decides the
suspected records in a forked process. If the fork crashes, or owners crash repeatedly, it decides them one by one, each
after a commit that names the record (``trying``). A record that a new owner finds as ``trying`` has crashed two
workers: it becomes a dead letter. If owners crash repeatedly without such a record, the history must be the cause: the
third owner takes over without history. The embedded broker keeps no notes; there, only Python exceptions are isolated.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from slacktide.streams.records import Place, Record

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


class Quarantine:
    """The quarantine of one session; ``owner``: unique name of this process."""

    def __init__(self, owner: str, log_crash: Callable[[Place, int, int], None]) -> None:
        self.offsets: Offsets | None = None
        """Set once the group is joined."""
        self._owner = owner
        self._log_crash = log_crash
        self._suspected_ms: dict[Place, int] = {}
        """By partition, the append time up to which records are decided alone."""
        self._condemned: dict[Place, int] = {}
        self._crashes: dict[Place, int] = {}
        self._taken_s: dict[Place, float] = {}
        self._reached_ms: dict[Place, int] = {}

    async def take_over(self, firsts: Mapping[Place, Record]) -> None:
        """Read the notes of these partitions, and note this process as their owner.

        ``firsts``: by partition, the first record to decide.
        """
        if self.offsets is None:
            return
        now_s = asyncio.get_running_loop().time()
        found = await self.offsets.notes(firsts)
        for place, first in firsts.items():
            self.forget(place)
            self._taken_s[place], self._reached_ms[place] = now_s, first.timestamp_ms
            offset, text = found.get(place, (first.offset, ""))
            note = note_of(text)
            if note is not None and note.owner != self._owner:
                self._suspect(place, offset, note)
        await self.offsets.commit_marked(self.marked({place: first.offset for place, first in firsts.items()}))

    def bare(self, place: Place) -> bool:
        """Check whether to skip history: its owners crashed before they decided one record alone."""
        return self._crashes.get(place, 0) > CRASHES_MAX

    def again(self, place: Place) -> bool:
        """Check whether several owners in a row crashed: records are then decided one by one without a fork."""
        return self._crashes.get(place, 0) > 1

    def suspects(self, place: Place, records: Sequence[Record]) -> int:
        """Return how many of the records, from the first on, must be decided alone."""
        until_ms = self._suspected_ms.get(place)
        if until_ms is None:
            return 0
        count = next((at for at, one in enumerate(records) if one.timestamp_ms > until_ms), len(records))
        if count < len(records):
            del self._suspected_ms[place]
        return count

    def condemned(self, record: Record) -> bool:
        """Check whether the record has crashed two workers."""
        return self._condemned.get(record.place) == record.offset

    async def trying(self, record: Record) -> None:
        """Commit that this record is being decided."""
        if self.offsets is not None:
            note = Note("trying", self._owner, self._reached_ms[record.place], self._crashes[record.place])
            await self.offsets.commit_marked({record.place: (record.offset, note.text)})

    async def settle(self, offsets: Mapping[Place, int]) -> None:
        """Commit that the records tried alone are decided."""
        if self.offsets is not None:
            await self.offsets.commit_marked(self.marked(offsets))

    def answered(self, place: Place, last_ms: int) -> None:
        """Note the append time of the newest decided record of a partition."""
        self._reached_ms[place] = last_ms

    def marked(self, offsets: Mapping[Place, int]) -> Marked:
        """Return offsets to commit, each with its note."""
        now_s = asyncio.get_running_loop().time()
        return {place: (offset, self._note(place, now_s).text) for place, offset in offsets.items()}

    def forget(self, place: Place) -> None:
        """Forget a revoked partition."""
        self._suspected_ms.pop(place, None)
        self._condemned.pop(place, None)
        self._crashes.pop(place, None)
        self._taken_s.pop(place, None)
        self._reached_ms.pop(place, None)

    def _suspect(self, place: Place, offset: int, note: Note) -> None:
        self._crashes[place] = crashes = note.crashes + 1
        self._suspected_ms[place] = note.reached_ms + SUSPECT_MS * WIDER ** min(note.crashes, 8)
        if note.kind == "trying":
            self._condemned[place] = offset
        self._log_crash(place, offset, crashes)

    def _note(self, place: Place, now_s: float) -> Note:
        settled = now_s - self._taken_s.get(place, now_s) >= TENURE_S
        crashes = 0 if settled else self._crashes.get(place, 0)
        return Note("running", self._owner, self._reached_ms.get(place, 0), crashes)


async def survives(work: Callable[[], object], within_s: float) -> bool:
    """Run work in a fork, and return whether the fork survives it.

    The fork shares no memory with this process. The work must not write to a socket or file. An exception does not
    count as a crash. A fork that exceeds ``within_s`` is killed, which counts as a crash.
    """
    copy = os.fork()
    if not copy:
        _run(work)
    ended = asyncio.create_task(asyncio.to_thread(os.waitpid, copy, 0))
    try:
        await asyncio.wait([ended], timeout=within_s)
    finally:
        if not ended.done():
            os.kill(copy, signal.SIGKILL)
    _, status = await ended
    return os.waitstatus_to_exitcode(status) == 0


def _run(work: Callable[[], object]) -> None:
    """Exit without handlers and flushes, which belong to the parent."""
    try:
        signal.set_wakeup_fd(-1)
        logging.disable(logging.CRITICAL)
        work()
    except BaseException:  # noqa: BLE001, S110 - the real run handles it
        pass
    finally:
        os._exit(0)
