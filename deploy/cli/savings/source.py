"""Reads an account's records from Kafka, or from export files in sequence."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from slacktide.deploy.cli.moment import Moment
from slacktide.deploy.cli.replay import source
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import SlacktideError
from slacktide.schemas.topics import COMMAND, OUTCOME, POLICY, SAMPLE
from slacktide.streams.replay.lines import Header, header_of
from slacktide.streams.replay.unsettled import Proven
from slacktide.streams.savings.account import VERSION, Account, Range, Report, Span, Within, difference

Files = Sequence[tuple[Header, Path]]
"""Export files with their headers, earliest first."""
TOPICS = tuple(topic.name for topic in (POLICY, SAMPLE, COMMAND, OUTCOME))
"""Policy and commands show which samples have a valid node proof."""


class OffsetsError(SlacktideError):
    """The records of an earlier result are gone."""


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an earlier JSON result that select its records."""

    version: int
    since_ms: int
    until_ms: int
    only: Sequence[str]
    read: Sequence[Range]


def headers(files: Iterable[Path]) -> Files:
    """Read the headers of export files, the earliest first.

    Raises:
        ExportFileError, TraceError: a file is unreadable, or is not an export.
    """
    found = []
    for path in files:
        with source.reading(path) as lines:
            found.append((header_of(lines.readline(), str(path)), path))
    return sorted(found, key=lambda one: (one[0].until_ms, one[0].since_ms, one[1]))


def ends_of(found: Files, since: Moment, until: Moment | None) -> tuple[int, int]:
    """Return the requested span; relative times refer to the end of the last file."""
    end_ms = max(header.until_ms for header, _ in found)
    begin_ms = min(header.since_ms for header, _ in found)
    until_ms = end_ms if until is None else until.at(end_ms)
    return max(begin_ms, since.at(until_ms)), until_ms


def made(files: Files, bootstrap: Cluster, span: Span, within: Within | None = None) -> Report:
    """Compute the account of the files, or of Kafka if there are none.

    Raises:
        ExportFileError, TraceError: a file is unreadable or invalid.
        LogError: Kafka cannot be read.
    """
    account, judges = Account(span, within), list[Proven]()

    def begin(opened: source.Opened) -> source.Sink:
        judges.append(Proven(opened.policies, account.take))
        return judges[-1].take_all

    for _, path in files:
        source.from_file(path, None, None, begin)
        judges[-1].finish()
    if not files:
        asyncio.run(source.from_log(bootstrap, TOPICS, span.since_ms, span.until_ms, begin))
        judges[-1].finish()
    return account.finish(sum(one.dropped for one in judges))


def again(files: Files, bootstrap: Cluster, answer: Path) -> Report:
    """Repeat an earlier account with the same records.

    Raises:
        OffsetsError: some records are gone, or the file is not a result.
    """
    known = _earlier(answer)
    span = Span(known.since_ms, known.until_ms, tuple(known.only))
    found = made(files, bootstrap, span, Within(known.read))
    if why := difference(known.read, found.read):
        where = ", ".join(str(path) for _, path in files) or str(bootstrap)
        raise OffsetsError(
            f"{where}: {why}; Kafka may have deleted them after their retention: use an export of that time"
        )
    return found


def _earlier(path: Path) -> Earlier:
    """Read a result of ``slacktide savings --output json``. Raises OffsetsError if it is not one."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Earlier)
    except OSError as exc:
        raise OffsetsError(f"{path}: {exc.strerror or exc}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise OffsetsError(f"{path}: not a report of `slacktide savings --output json`: {exc}") from exc
    if found.version != VERSION:
        raise OffsetsError(f"{path}: version {found.version}; accepted: version {VERSION}, which this release writes")
    return found
