"""What becomes of chosen dead letters when they are put back: pure, from what stands in the log."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slacktide.agents.kafka import Out, Record
from slacktide.schemas.access import REPLAYABLE
from slacktide.schemas.codec import decode
from slacktide.schemas.dead_letter import DeadLetter
from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.topics import Topic

HEADER = "ce_deadletter"
"""In a record that was put back: the dead letter's place and time, and where the record had lain."""
KEY_BYTES_MAX = 1_024
"""A key that fills this may have been cut."""

Fate = Literal["put back", "already there", "overtaken", "outlived", "not whole", "from elsewhere"]
WHY: Mapping[Fate, str] = {
    "put back": "put back",
    "already there": "put back earlier",
    "overtaken": "left: its key has been told anew since, and only the newest counts there",
    "outlived": "left: its topic would have dropped it by now",
    "not whole": "left: not all of it was kept",
    "from elsewhere": "left: there is no such topic or partition",
}
TOPICS = {topic.name: topic for topic in REPLAYABLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter as it lies in its topic."""

    record: Record
    body: DeadLetter

    @property
    def place(self) -> str:
        """Where it lies, and since when: offsets begin anew in a topic that is made anew."""
        return f"{self.record.partition}:{self.record.offset}@{self.record.timestamp_ms}"

    @property
    def origin(self) -> str:
        """Where the record lay that it is about: several may have refused that one."""
        return f"{self.body.topic}/{self.body.partition}:{self.body.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What becomes of one of them."""

    letter: Letter
    fate: Fate
    out: Out | None = None


def letter_of(record: Record) -> Letter | None:
    """The dead letter that a record is; None: it is none."""
    try:
        return Letter(record=record, body=decode(record.value, DeadLetter))
    except BadMessageError:
        return None


def steps(
    letters: Sequence[Letter], there: Mapping[str, Sequence[Record]], partitions: Mapping[str, int], now_ms: int
) -> list[Step]:
    """Decide on each letter, in their order.

    Args:
        letters: those that were chosen.
        there: by topic what stands in it behind the letters' own records.
        partitions: how many each topic has; one that is not there is left out.
        now_ms: UTC epoch milliseconds.

    """
    found = []
    done = {text for records in there.values() for record in records for text in _marks(record)}
    for letter in letters:
        fate = _fate(letter, there.get(letter.body.topic, ()), partitions, now_ms)
        if fate == "put back" and not done.isdisjoint(_marks_of(letter)):
            fate = "already there"
        done.update(_marks_of(letter) if fate == "put back" else ())
        found.append(Step(letter=letter, fate=fate, out=_out(letter) if fate == "put back" else None))
    return found


def _fate(letter: Letter, behind: Sequence[Record], partitions: Mapping[str, int], now_ms: int) -> Fate:
    body, topic = letter.body, TOPICS.get(letter.body.topic)
    if topic is None or body.partition >= partitions.get(topic.name, 0):
        return "from elsewhere"
    if not _whole(letter):
        return "not whole"
    if _outlived(topic, body, now_ms):
        return "outlived"
    told_anew = [record for record in behind if _told_anew(letter, record)]
    if topic.cleanup == "compact" and told_anew:
        mine = any(not _marks_of(letter).isdisjoint(_marks(record)) for record in told_anew)
        return "already there" if mine else "overtaken"
    return "put back"


def _outlived(topic: Topic, body: DeadLetter, now_ms: int) -> bool:
    """So that what was put back is still there to be seen as long as its letter may be."""
    return topic.retention_ms is not None and now_ms - body.refused_ms > topic.retention_ms


def _told_anew(letter: Letter, record: Record) -> bool:
    """By a record behind it, or in a topic that was made anew since."""
    body = letter.body
    later = record.offset > body.offset or record.timestamp_ms > body.refused_ms
    return later and record.partition == body.partition and record.key == letter.record.key


def _marks_of(letter: Letter) -> frozenset[str]:
    return frozenset({letter.place, letter.origin})


def _marks(record: Record) -> list[str]:
    return [text for name, raw in record.headers if name == HEADER for text in raw.decode(errors="replace").split()]


def _whole(letter: Letter) -> bool:
    """Whether key and value are as they were."""
    body, key = letter.body, letter.record.key or b""
    value = _value(body)
    if body.key is not None and (len(key) >= KEY_BYTES_MAX or key.decode(errors="backslashreplace") != body.key):
        return False
    return len(value or b"") == body.value_bytes


def _value(body: DeadLetter) -> bytes | None:
    try:
        return None if body.value_base64 is None else base64.b64decode(body.value_base64, validate=True)
    except binascii.Error:
        return b""


def _out(letter: Letter) -> Out:
    body = letter.body
    told = [(name, text.encode()) for name, text in body.headers.items() if name != HEADER]
    return Out(
        topic=body.topic,
        partition=body.partition,
        key=None if body.key is None else letter.record.key or b"",
        value=_value(body),
        headers=(*told, (HEADER, f"{letter.place} {letter.origin}".encode())),
    )
