"""``slacktide dead-letter``: records that could not be processed, with the reason, and how to write them again.

Any part may write dead letters, so their content is not trusted: they only point to a record. The original is written
again if it still exists, and only to a topic that tolerates duplicates.
"""

import asyncio
import base64
import binascii
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import click

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.records import dead_letter_row, dead_letter_text, line, topic_named
from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import Duration, Name, count, show, table
from slacktide.schemas.access import REPLAYABLE
from slacktide.schemas.codec import decode
from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import VALUE_BYTES_MAX, DeadLetter
from slacktide.schemas.errors import BadMessageError, LogError
from slacktide.schemas.topics import BY_NAME, DEAD_LETTER
from slacktide.streams.kafka import Placed, Sender, TopicState, describe_topics, read_topic
from slacktide.streams.records import Out, Record, clipped

SEND_S = 5.0
BATCH = 100
HEADER = "ce_deadletter"
"""The header of a record that was written again: the original's position, as topic/partition:offset."""
OFFSET_DIGITS_MAX = 19
"""An offset has 63 bits."""

Fate = Literal["put back", "already there", "no such place", "expired", "changed", "unreadable", "batch"]
WHY: Mapping[Fate, str] = {
    "put back": "put back",
    "already there": "written earlier",
    "no such place": "not written: the topic has no such partition or record; check whether the topic was re-created",
    "expired": "not written: the original record has expired",
    "changed": "not written: the record is not the one in the dead letter; check whether the topic was re-created",
    "batch": "not written: the batch cannot be read; its producer must send its records again",
    "unreadable": "not written: the original record still cannot be decoded",
}
TOPICS = {topic.name: topic for topic in REPLAYABLE}


class Place(NamedTuple):
    """A record's position."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return the position as in the header."""
        return f"{self.topic}/{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeadLetter:
    """A dead letter and its own record."""

    record: Record
    body: DeadLetter

    @property
    def origin(self) -> Place:
        """Return the position of the rejected record; several readers may have rejected it."""
        return Place(self.body.topic, self.body.partition, self.body.offset)


@dataclass(slots=True)
class Found:
    """Originals that dead letters point to."""

    originals: dict[Place, Record] = field(default_factory=dict)
    put_back: set[Place] = field(default_factory=set)
    """Originals that were already written again."""

    def add(self, record: Record, wanted: frozenset[Place]) -> None:
        """Add a record at or after the first original of its partition, in order."""
        place = Place(record.topic, record.partition, record.offset)
        if place in wanted:
            self.originals[place] = record
        for raw in (raw for name, raw in record.headers if name == HEADER):
            offset = raw.decode(errors="replace").removeprefix(f"{record.topic}/{record.partition}:")
            if not offset.isdecimal() or len(offset) > OFFSET_DIGITS_MAX:
                continue
            marked = Place(record.topic, record.partition, int(offset))
            original = self.originals.get(marked)
            # The header is not trusted: any producer of the topic may set it.
            if original is not None and (original.key, original.value) == (record.key, record.value):
                self.put_back.add(marked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result for one dead letter."""

    dead_letter: StoredDeadLetter
    fate: Fate
    out: Out | None = None


@click.group(cls=Group, epilog="Example: slacktide dead-letter list --since 1h")
def command() -> None:
    """List records that could not be processed, and publish them again."""


@command.command(name="list", epilog="Example: slacktide dead-letter list --since 1h --bootstrap kafka-1:9092")
@settings.bootstrap_option
@click.option("--since", type=Duration(), help="Only dead letters of the last DURATION: 90s, 5m, 2h or 1d.")
def list_(bootstrap: Cluster, since: int | None) -> None:
    """List dead letters: time, offset, origin of the record, which part rejected it, and why."""
    since_ms = None if since is None else SystemClock().wall_ms() - since
    rows = [dead_letter_row(record) for record in asyncio.run(_dead_letters(bootstrap, since_ms=since_ms))]
    show(table(["TIME", "OFFSET", "FROM", "KEY", "READER", "REASON"], rows) if rows else "no dead letters")


@command.command(name="show", epilog="Example: slacktide dead-letter show 42 --bootstrap kafka-1:9092")
@click.argument("offset", type=click.IntRange(0))
@settings.bootstrap_option
def show_(offset: int, bootstrap: Cluster) -> None:
    """Show the dead letter at an offset (see `list`), with the original record."""
    found = asyncio.run(_dead_letters(bootstrap, start=offset, stop=offset + 1))
    if not found:
        raise LogError(f"{bootstrap}: no dead letter at offset {offset}; list offsets: slacktide dead-letter list")
    show(dead_letter_text(found[0]))


@command.command(epilog="Example: slacktide dead-letter replay --topic node.sample --since 1h --dry-run")
@settings.bootstrap_option
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    help="Topic that may be written to, in all versions if none is given. Repeat for several.",
)
@click.option("--since", type=Duration(), help="Only dead letters of the last DURATION: 90s, 5m, 2h or 1d.")
@click.option("--key", type=Name(), help="Only records with this key, such as a node's name.")
@click.option("--dry-run", is_flag=True, help="Print the decoded records, and write nothing.")
def replay(bootstrap: Cluster, *, topics: tuple[str, ...], since: int | None, key: str | None, dry_run: bool) -> None:
    """Write refused records again, after the cause was fixed: each once, to its own partition.

    A dead letter only names the place of the original record. This command reads the original there and writes its
    key, value and headers; it never writes the content of a dead letter. It shows what it will write before it writes,
    and asks when run in a terminal. It leaves a record that has expired, that still cannot be decoded, or that is not
    the one described, as in a re-created topic.

    Only node.sample, node.sample.backfill and node.outcome can be written again. The other topics are published again
    by their writers.
    """
    names = frozenset(name for topic in topics for name in _replayable(topic))
    since_ms = None if since is None else SystemClock().wall_ms() - since

    def chosen(dead_letter: StoredDeadLetter) -> bool:
        return dead_letter.body.topic in names and key in (None, dead_letter.body.key)

    decided = asyncio.run(_decided(bootstrap, since_ms, chosen))
    if decided:
        _show(decided, whole=dry_run)
    outs = [step.out for step in decided if step.out is not None]
    fates = Counter(step.fate for step in decided)
    if outs and not dry_run:
        if sys.stdin.isatty():
            listed = ", ".join(sorted({out.topic for out in outs}))
            click.confirm(f"Write {count(len(outs), 'record')} to {listed}?", abort=True)
        for out, placed in zip(outs, asyncio.run(_sent(bootstrap, outs)), strict=True):
            show(f"written to {out.topic} {placed.partition}:{placed.offset}")
    left = fates.total() - fates["put back"] - fates["already there"]
    would = "would be " if dry_run else ""
    show(f"{would}written: {fates['put back']}, written earlier: {fates['already there']}, not written: {left}")


def _replayable(topic: str) -> list[str]:
    """Return the topics of this name: without a version, all versions."""
    name = topic_named(topic).name
    stem, _, version = name.rpartition(".")
    if name not in TOPICS:
        raise click.BadParameter(
            f"{name} cannot be replayed, because its writer republishes it; accepted: {', '.join(TOPICS)}",
            param_hint="--topic",
        )
    return [name] if topic.endswith(version) else [one for one in TOPICS if one.rpartition(".")[0] == stem]


def _show(decided: Sequence[Step], *, whole: bool) -> None:
    """Show the result for each dead letter; ``whole``: with the records to write, as ``topics tail`` shows them."""
    sizes = ["-" if step.out is None else len(step.out.value or b"") for step in decided]
    rows = [
        (*dead_letter_row(step.dead_letter.record)[1:4], WHY[step.fate], size)
        for step, size in zip(decided, sizes, strict=True)
    ]
    show(table(["OFFSET", "FROM", "KEY", "OUTCOME", "BYTES"], rows))
    for step in decided:
        if whole and step.out is not None:
            topic, partition, offset = step.dead_letter.origin
            original = Record(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=step.dead_letter.body.refused_ms,
                key=step.out.key,
                value=step.out.value,
                headers=tuple(one for one in step.out.headers if one[0] != HEADER),
            )
            show(line(original, BY_NAME[topic]))


async def _decided(bootstrap: Cluster, since_ms: int | None, chosen: Callable[[StoredDeadLetter], bool]) -> list[Step]:
    """Return the selected dead letters with their results."""
    read = [dead_letter_of(record) for record in await _dead_letters(bootstrap, since_ms=since_ms)]
    dead_letters = [dead_letter for dead_letter in read if dead_letter is not None and chosen(dead_letter)]
    wanted = frozenset(dead_letter.origin for dead_letter in dead_letters)
    states = await describe_topics(bootstrap, sorted({place.topic for place in wanted}))
    found = Found()
    for state in states.values():
        async with aclosing(read_topic(bootstrap, state.name, start=starts(dead_letters, state))) as records:
            async for record in records:
                found.add(record, wanted)
    return steps(dead_letters, found, states)


async def _sent(bootstrap: Cluster, outs: Sequence[Out]) -> list[Placed]:
    sender = Sender(bootstrap, client_id="slacktide-dead-letter-replay", acks="all", timeout_s=SEND_S)
    try:
        await sender.connect(sorted({out.topic for out in outs}))
        placed = []
        for first in range(0, len(outs), BATCH):
            placed += await sender.send(outs[first : first + BATCH])
        return placed
    finally:
        await sender.close()


async def _dead_letters(
    bootstrap: Cluster, *, since_ms: int | None = None, start: int | None = None, stop: int | None = None
) -> list[Record]:
    """Read dead letters from offset ``start`` up to ``stop``. Their topic has one partition."""
    found: list[Record] = []
    first = None if start is None else {0: start}
    async with aclosing(read_topic(bootstrap, DEAD_LETTER.name, since_ms=since_ms, start=first)) as records:
        async for record in records:
            if stop is not None and record.offset >= stop:
                break
            found.append(record)
    return found


def dead_letter_of(record: Record) -> StoredDeadLetter | None:
    """Return the dead letter in a record; None: it is invalid."""
    try:
        return StoredDeadLetter(record=record, body=decode(record.value, DeadLetter))
    except BadMessageError:
        return None


def starts(dead_letters: Iterable[StoredDeadLetter], state: TopicState) -> dict[int, int]:
    """Return the offset to read from by partition; the end if no dead letter points to it."""
    first = dict(state.end)
    for dead_letter in dead_letters:
        topic, partition, offset = dead_letter.origin
        if topic == state.name and partition in first:
            first[partition] = min(first[partition], offset)
    return first


def steps(dead_letters: Sequence[StoredDeadLetter], found: Found, states: Mapping[str, TopicState]) -> list[Step]:
    """Decide on each dead letter, in order, by the originals and the existing topics."""
    decided, done = [], set(found.put_back)
    for dead_letter in dead_letters:
        original, out = found.originals.get(dead_letter.origin), None
        fate = _fate(dead_letter, original, states)
        if fate == "put back" and dead_letter.origin in done:
            fate = "already there"
        if fate == "put back" and original is not None:
            done.add(dead_letter.origin)
            headers = [one for one in original.headers if one[0] != HEADER]
            out = Out(
                topic=original.topic,
                partition=original.partition,
                key=original.key,
                value=original.value,
                headers=(*headers, (HEADER, str(dead_letter.origin).encode())),
            )
        decided.append(Step(dead_letter=dead_letter, fate=fate, out=out))
    return decided


def _fate(dead_letter: StoredDeadLetter, original: Record | None, states: Mapping[str, TopicState]) -> Fate:
    topic, partition, offset = dead_letter.origin
    state = states.get(topic)
    if dead_letter.body.last_offset is not None:
        return "batch"
    if topic not in TOPICS or state is None or offset >= state.end.get(partition, 0):
        return "no such place"
    if original is None:
        return "expired"
    if not _describes(dead_letter.body, original):
        return "changed"
    try:
        decode(original.value, TOPICS[topic].message)
    except BadMessageError:
        return "unreadable"
    return "put back"


def _describes(body: DeadLetter, original: Record) -> bool:
    """Return whether the dead letter describes this record, as far as it kept its content."""
    value = original.value or b""
    try:
        kept = base64.b64decode(body.value_base64 or "", validate=True)
    except binascii.Error:
        return False
    return (body.key, body.value_bytes, kept) == (clipped(original.key), len(value), value[:VALUE_BYTES_MAX])
