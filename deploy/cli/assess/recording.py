"""Reads Prometheus responses in chunks: from the server, or from the file of an earlier run."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from slacktide.deploy.cli.assess.prometheus import Prometheus, Series, TooMuchError
from slacktide.deploy.cli.assess.queries import Asked, labels, queries
from slacktide.schemas.errors import SlacktideError

CHUNK_STEPS = 72
"""Steps per query: six hours at five minutes."""
FORMAT = "slacktide assess 1"
LABELS = "labels"


class RecordingError(SlacktideError):
    """The file is not a recording, or is truncated."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The series of a query, or of a part of its span."""

    name: str
    part: float
    """Progress after this response, 0 to 1."""
    series: list[Series]


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    asked: Asked


def answers(prometheus: Prometheus, asked: Asked) -> Iterator[Answer]:
    """Run all queries in chunks of bounded size."""
    wanted = queries(asked)
    end_s = asked.start_s + (asked.steps - 1) * asked.step_s
    chunks = range(0, asked.steps, CHUNK_STEPS)
    total, done = len(wanted) * len(chunks) + 1, 1
    yield Answer(name=LABELS, part=done / total, series=prometheus.range(labels(asked), end_s, end_s, asked.step_s))
    for name, query in wanted.items():
        for first in chunks:
            last = min(first + CHUNK_STEPS, asked.steps) - 1
            done += 1
            for series in _split(prometheus, query.text, asked, first, last):
                yield Answer(name=name, part=done / total, series=series)


def _split(prometheus: Prometheus, text: str, asked: Asked, first: int, last: int) -> Iterator[list[Series]]:
    """Query a span; halve it if the server's limit is exceeded."""
    start_s, end_s = (asked.start_s + at * asked.step_s for at in (first, last))
    try:
        series = prometheus.range(text, start_s, end_s, asked.step_s)
    except TooMuchError:
        if first == last:
            raise
        middle = (first + last) // 2
        yield from _split(prometheus, text, asked, first, middle)
        yield from _split(prometheus, text, asked, middle + 1, last)
    else:
        yield series


def recorded(asked: Asked, coming: Iterator[Answer], file: Path) -> Iterator[Answer]:
    """Write responses to a file as they pass: a header, one line per response, an end."""
    with gzip.open(file, "wb", compresslevel=3) as out:
        out.write(msgspec.json.encode(_Header(format=FORMAT, asked=asked)) + b"\n")
        for answer in coming:
            out.write(msgspec.json.encode(answer) + b"\n")
            yield answer
        out.write(b"end\n")


def read(file: Path) -> tuple[Asked, Iterator[Answer]]:
    """Read the recording of an earlier run.

    Raises:
        RecordingError: the file is not from ``--record``, or is truncated.
    """
    stack = ExitStack()
    try:
        lines: Any = stack.enter_context(gzip.open(file, "rb"))  # noqa: SIM115 - _lines closes it
        header = msgspec.json.decode(lines.readline(), type=_Header)
    except (OSError, EOFError, msgspec.MsgspecError) as exc:
        stack.close()
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
        raise RecordingError(
            f"{file} is not a recording: {why}; accepted: a file that slacktide assess --record wrote"
        ) from exc
    if header.format != FORMAT:
        stack.close()
        raise RecordingError(f"{file} has the format {header.format!r}; accepted: {FORMAT!r}. Record it again")
    return header.asked, _lines(file, lines, stack)


def _lines(file: Path, lines: Any, stack: ExitStack) -> Iterator[Answer]:
    decoder = msgspec.json.Decoder(Answer)
    with stack:
        try:
            for line in lines:
                if line == b"end\n":
                    return
                yield decoder.decode(line)
        except (OSError, EOFError, msgspec.MsgspecError) as exc:
            raise RecordingError(f"{file} is damaged: {exc}. Record it again") from exc
    raise RecordingError(f"{file} ends early: its recording was interrupted. Record it again")
