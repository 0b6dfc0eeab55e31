"""Reads the records of a replay from an export file or from Kafka, some at a time."""

import asyncio
import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from itertools import chain
from pathlib import Path
from typing import BinaryIO, cast

from slacktide.agents.clock import SystemClock
from slacktide.deploy.runtime.line_file import ExportFileError, Lines
from slacktide.deploy.runtime.progress import Bar
from slacktide.deploy.runtime.text import Moment
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError
from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.topics import COMMAND, POLICY, SAMPLE
from slacktide.streams.analysis.replay.lines import BLOCK, SOONER_MS, STATE, blocks_of, header_of
from slacktide.streams.kafka import Span, Spans, partition_counts
from slacktide.streams.records import Record
from slacktide.streams.taken import Records

FETCH_WAIT_MS = 100
EARLY = STATE | SOONER_MS.keys() | {SAMPLE.name, COMMAND.name}
"""Topics also read before the span: answers show which samples have a valid node proof."""
BEFORE = STATE | SOONER_MS.keys()
"""Topics that do not count for the progress."""
BUFFER_BYTES = 1 << 20
Sink = Callable[[Sequence[Record]], None]
"""Takes the next records, in order."""
EVERY_RECORDS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The data known before the first record."""

    since_ms: int
    until_ms: int
    policies: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Where:
    """A file or a Kafka cluster, and the span."""

    file: Path | None
    bootstrap: Cluster | None
    since: Moment | None
    until: Moment | None

    def __str__(self) -> str:
        return str(self.file or self.bootstrap)


def _opened(path: Path, mode: str) -> BinaryIO:
    """Return the file, compressed by its name."""
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip.open(path, mode))
    return cast("BinaryIO", path.open(mode, BUFFER_BYTES))


def reading(path: Path) -> Lines:
    """Open a file for reading. Raises ExportFileError if the file cannot be opened."""
    try:
        # Python's line reader of compressed files is as slow as the decompression.
        return Lines(BufferedReader(cast("RawIOBase", _opened(path, "rb")), BUFFER_BYTES), str(path))
    except OSError as exc:
        raise ExportFileError(f"{path}: {exc.strerror or exc}") from exc


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing, compressed by its name; it replaces an existing file only when complete.

    Raises ExportFileError: the file cannot be written.
    """
    whole = path.resolve()
    # A pipe is written directly: it has no content to preserve.
    is_stream = path.exists() and not path.is_file()
    part = path if is_stream else whole.with_name(f"{whole.stem}.part{whole.suffix}")
    try:
        with _opened(part, "wb") as out:
            yield out
        if not is_stream:
            part.replace(whole)
    except OSError as exc:
        raise ExportFileError(f"{path}: {exc.strerror or exc}") from exc
    finally:
        if not is_stream:
            part.unlink(missing_ok=True)


def from_file(path: Path, since: Moment | None, until: Moment | None, begin: Callable[[Opened], Sink]) -> None:
    """Pass on a file's records, policies first, all others before ``until``.

    Raises:
        ExportFileError: the file cannot be read.
        TraceError: a line is invalid or misplaced.
    """
    with reading(path) as lines:
        header = header_of(lines.readline(), str(path))
        end_ms = header.until_ms
        until_ms = end_ms if until is None else until.at(end_ms)
        since_ms = header.since_ms if since is None else max(header.since_ms, since.at(end_ms))
        policies, rest = _policies(blocks_of(lines, str(path), topics=header.topics))
        sink = begin(Opened(since_ms=since_ms, until_ms=until_ms, policies=policies))
        progress = Progress("replay", since_ms, until_ms)
        for block in rest:
            within = [at_ms < until_ms for at_ms in block.times_ms]
            sink(block if all(within) else block.chosen(within))
            counted = [at_ms for topic, at_ms in zip(block.topics, block.times_ms, strict=True) if topic not in BEFORE]
            if counted:
                progress.read(counted[-1], len(counted))
        progress.done()


def read(where: Where, topics: Sequence[str], begin: Callable[[Opened], Sink]) -> None:
    """Pass on the records of a file, or of ``topics`` in Kafka; without a start: all that Kafka has.

    Raises:
        ExportFileError, TraceError: the file is unreadable or invalid.
        LogError: Kafka cannot be read, or a topic is missing.
    """
    if where.file is not None:
        from_file(where.file, where.since, where.until, begin)
        return
    assert where.bootstrap is not None
    now_ms = SystemClock().wall_ms()
    until_ms = now_ms if where.until is None else where.until.at(now_ms)
    since_ms = 0 if where.since is None else where.since.at(now_ms)
    asyncio.run(from_log(where.bootstrap, topics, since_ms, until_ms, begin))


def _policies(blocks: Iterator[Records]) -> tuple[list[Record], Iterator[Records]]:
    """Return the policies, and what comes after them."""
    policies: list[Record] = []
    for block in blocks:
        first = next((at for at, topic in enumerate(block.topics) if topic != POLICY.name), len(block))
        policies += block[:first]
        if first < len(block):
            return policies, chain([block[first:]], blocks)
    return policies, iter(())


async def from_log(
    bootstrap: Cluster, topics: Sequence[str], since_ms: int, until_ms: int, begin: Callable[[Opened], Sink]
) -> None:
    """Pass on records from Kafka by time: of ``topics``; samples and answers also from shortly before ``since_ms``.

    Raises LogError: Kafka cannot be read, or a topic is missing.
    """
    counts = await partition_counts(bootstrap, topics)
    if not any(counts.values()):
        raise LogError(f"{bootstrap}: none of the topics exists; create them: slacktide topics apply")
    async with Spans(bootstrap, FETCH_WAIT_MS) as spans:
        policies: list[Record] = []
        if POLICY.name in topics:
            whole = Span(topics=[POLICY.name], whole=STATE, since_ms=0, until_ms=until_ms)
            async with aclosing(spans.read(whole, counts)) as reading:
                policies = [record async for record in reading]
        others = [topic for topic in topics if topic != POLICY.name]
        early_ms = max(0, since_ms - LISTED_MS)
        span = Span(topics=others, whole=STATE, since_ms=early_ms, until_ms=until_ms, sooner_ms=SOONER_MS)
        sink = begin(Opened(since_ms=since_ms, until_ms=until_ms, policies=policies))
        progress = Progress("reading", since_ms, until_ms)
        async with aclosing(spans.read(span, counts)) as reading:
            some: list[Record] = []
            async for record in reading:
                if record.timestamp_ms >= since_ms or record.topic in EARLY:
                    some.append(record)
                if len(some) == BLOCK:
                    sink(some)
                    some = []
                if record.topic not in BEFORE:
                    progress.read(record.timestamp_ms)
            sink(some)
        progress.done()


class Progress:
    """Shows progress by the timestamps of read records."""

    def __init__(self, what: str, since_ms: int, until_ms: int) -> None:
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._bar = Bar(what)
        self._records = 0

    def read(self, timestamp_ms: int, records: int = 1) -> None:
        """Add records; ``timestamp_ms``: of the last one."""
        if not self._records:  # retention may begin after the requested start
            self._since_ms = max(self._since_ms, timestamp_ms)
        before, self._records = self._records, self._records + records
        due = before // EVERY_RECORDS < self._records // EVERY_RECORDS
        if due and self._bar.due:
            span_ms = max(1, self._until_ms - self._since_ms)
            rate = self._records / max(0.001, self._bar.elapsed_s)
            part = (timestamp_ms - self._since_ms) / span_ms
            self._bar.show(part, f"{self._records:,} records, {rate:,.0f}/s")

    def done(self) -> None:
        """Remove the bar."""
        self._bar.done()
