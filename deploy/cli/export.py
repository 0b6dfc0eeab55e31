"""``slacktide topics export``: a time span of the topics in one file, docs/export-format.md."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path

import click

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.moment import Moment, MomentType
from slacktide.deploy.cli.records import line, topic_named
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import count, instant, show
from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.schemas.topics import BY_NAME

ALL_SINCE_MS = 0


@click.command(
    name="export", epilog="Example: slacktide topics export day.jsonl.gz --since 2026-03-01T12:00Z --until 1h"
)
@click.argument("file", type=settings.file())
@settings.bootstrap_option
@click.option(
    "--since", type=MomentType(), help="Start: a time, or a duration before the end. Without it: the oldest record."
)
@click.option("--until", type=MomentType(), help="End: a time, or a duration before now. Without it: now.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Only this topic. Repeat for several. Without it: all topics that a replay needs.",
)
def command(
    file: Path, *, bootstrap: Cluster, since: Moment | None, until: Moment | None, topics: tuple[str, ...]
) -> None:
    """Write a time span of the topics to FILE as JSON lines, compressed if its name ends in .gz.

    The file contains all records of policy and inventory, and those of other topics in the span. Samples begin 70 s
    before it, because later samples refer to their pod lists and facts.
    """
    from slacktide.deploy.cli.replay import source  # noqa: PLC0415 - loads the streams' Kafka: not for --help
    from slacktide.schemas.heartbeat import is_heartbeat  # noqa: PLC0415
    from slacktide.streams.records import FIGURES, Record  # noqa: PLC0415
    from slacktide.streams.replay import lines  # noqa: PLC0415

    now_ms = SystemClock().wall_ms()
    until_ms = now_ms if until is None else until.at(now_ms)
    since_ms = ALL_SINCE_MS if since is None else since.at(now_ms)
    if since_ms >= until_ms:
        raise click.UsageError(f"--since ({instant(since_ms)}) is not before --until ({instant(until_ms)})")
    names = tuple(dict.fromkeys(topic_named(topic).name for topic in topics)) or lines.REPLAYED
    written: Counter[str] = Counter()
    with source.writing(file) as out:

        def put(record: Record) -> None:
            if isinstance(record.value, UnreadableBatch):
                show(f"left out: {line(record, BY_NAME[record.topic])}", err=True)
                return
            if record.topic in FIGURES and is_heartbeat(record.key):
                return  # no decision depends on them
            out.write(lines.line_of(record))
            written[record.topic] += 1

        def put_all(some: Sequence[Record]) -> None:
            deque(map(put, some), maxlen=0)

        def begin(opened: source.Opened) -> source.Sink:
            out.write(lines.head_line(lines.Header(since_ms=since_ms, until_ms=until_ms, topics=names)))
            put_all(opened.policies)
            return put_all

        asyncio.run(source.from_log(bootstrap, names, since_ms, until_ms, begin))
        out.write(lines.end_line(written.total()))
    for name in names:
        show(f"{written[name]:>10}  {name}")
    show(f"{count(written.total(), 'record')}, {file.stat().st_size:,} bytes in {file}")
