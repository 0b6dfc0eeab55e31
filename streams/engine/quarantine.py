"""Keep a record that crashed a worker from crashing the next one, or the same one again.

Each offset that a worker commits carries a note of who works on the partition. It costs nothing, and is cleared when
the worker stops or gives the partition back. So a note that is found at a takeover shows that its owner crashed, in
whatever way. A copy of the new owner's process then answers what that one may have been working on. Where the copy
dies, too, or owners crash again, the new owner answers it record by record, each after a commit that names it
(``trying``). A record that is found so named has now crashed two workers. It becomes a dead letter unread.

An owner that crashes again and again without any such record crashes on what lies before: the third one in a row
takes over without history. The embedded broker keeps no notes: there, only errors that Python can catch are isolated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from slacktide.streams.records import Place, Record

Marked = Mapping[Place, tuple[int, str]]
"""By place, a committed offset and its note."""

SUSPECT_MS = 2_000
"""A worker commits each second: it worked on records that were appended within so long after what it committed."""
CRASHES_MAX = 2
"""After so many crashes in a row history is left out. Each multiplies what is suspected, as for a worker that reads a
backlog, by ``WIDER``."""
WIDER = 4
TENURE_S = 60.0
"""Who has worked so long on a partition did not crash on what it found there."""
_FORM = "slacktide-1"


class Offsets(Protocol):
    """The group's committed offsets."""

    async def commit_marked(self, offsets: Marked) -> bool:
        """Commit now; False: the consumer group is rebalancing, or the broker is away."""

    async def notes(self, places: Collection[Place]) -> Marked:
        """What is committed; places of which nothing is known are left out."""


class Note(NamedTuple):
    """What a committed offset holds beside itself."""

    kind: str
    """``running``, or ``trying``: the record at this offset is being answered alone."""
    owner: str
    reached_ms: int
    """Append time of the newest record that was answered."""
    crashes: int
    """Crashes in a row before this owner."""

    @property
    def text(self) -> str:
        """As it is committed."""
        return f"{_FORM} {self.kind} {self.owner} {self.reached_ms} {self.crashes}"


def note_of(text: str) -> Note | None:
    """Read a note; None: there is none, or not one of these."""
    form, *parts = text.split(" ")
    if form != _FORM or len(parts) != len(Note._fields):
        return None
    kind, owner, reached_ms, crashes = parts
    if not (reached_ms.isdigit() and crashes.isdigit()):
        return None
    return Note(kind, owner, int(reached_ms), int(crashes))


class Quarantine:
    """Of one session.

    Args:
        owner: of this process: no other has it.
        log_crash: called with the place, offset and crashes of a crashed owner.

    """

    def __init__(self, owner: str, log_crash: Callable[[Place, int, int], None]) -> None:
        self.offsets: Offsets | None = None
        """Set by the shell once it has joined the group."""
        self._owner = owner
        self._log_crash = log_crash
        self._suspected_ms: dict[Place, int] = {}
        """By place, until which append time records are answered alone."""
        self._condemned: dict[Place, int] = {}
        self._crashes: dict[Place, int] = {}
        self._taken_s: dict[Place, float] = {}
        self._reached_ms: dict[Place, int] = {}

    async def take_over(self, firsts: Mapping[Place, Record]) -> None:
        """Look who worked on these partitions, and note that this process does now.

        Args:
            firsts: by place, the first record that is to be answered.

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
        """Whether history is to be left out: its owners crashed before they could try one record alone."""
        return self._crashes.get(place, 0) > CRASHES_MAX

    def again(self, place: Place) -> bool:
        """Whether more than one owner in a row has crashed: its records are answered one by one, whatever they do."""
        return self._crashes.get(place, 0) > 1

    def suspects(self, place: Place, records: Sequence[Record]) -> int:
        """How many of the records, from the first on, are to be answered alone."""
        until_ms = self._suspected_ms.get(place)
        if until_ms is None:
            return 0
        count = next((at for at, one in enumerate(records) if one.timestamp_ms > until_ms), len(records))
        if count < len(records):
            del self._suspected_ms[place]
        return count

    def condemned(self, record: Record) -> bool:
        """Whether the record has crashed two workers."""
        return self._condemned.get(record.place) == record.offset

    async def trying(self, record: Record) -> None:
        """Note that this record is being answered; the note outlives this process."""
        if self.offsets is not None:
            note = Note("trying", self._owner, self._reached_ms[record.place], self._crashes[record.place])
            await self.offsets.commit_marked({record.place: (record.offset, note.text)})

    async def settle(self, offsets: Mapping[Place, int]) -> None:
        """Note that what was tried alone is answered."""
        if self.offsets is not None:
            await self.offsets.commit_marked(self.marked(offsets))

    def answered(self, last: Record) -> None:
        """The newest record of its place that was answered."""
        self._reached_ms[last.place] = last.timestamp_ms

    def marked(self, offsets: Mapping[Place, int]) -> Marked:
        """Offsets to commit, each with its note."""
        now_s = asyncio.get_running_loop().time()
        return {place: (offset, self._note(place, now_s).text) for place, offset in offsets.items()}

    def forget(self, place: Place) -> None:
        """The place has moved away."""
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
