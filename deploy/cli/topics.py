"""``slacktide topics``: plan, create, list, read and export topics; show lag."""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import click
import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.records import json_line, line, sample_lines, topic_named
from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.cli.topic_plan import Change, acl_command, changes, plan_text, strimzi_command
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import (
    Duration,
    Moment,
    MomentType,
    Name,
    count,
    instant,
    output_option,
    show,
    show_json,
    table,
)
from slacktide.schemas.access import STREAM_GROUP
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.dead_letter import UnreadableBatch
from slacktide.schemas.errors import BadMessageError, LogError, RightsError
from slacktide.schemas.heartbeat import is_heartbeat
from slacktide.schemas.sample import LISTED_MS
from slacktide.schemas.topics import BACKFILL, BY_NAME, HOUR_MS, SAMPLE, TOPICS, Topic
from slacktide.streams.kafka import TopicState, create_topics, describe_topics, group_lag, read_topic
from slacktide.streams.kafka.admin import broker_count, set_configs
from slacktide.streams.records import FIGURES, Record
from slacktide.streams.samples import SampleReader

PENDING = 2
LAST = 10
RETRY_S, RETRY_MAX_S = 0.5, 5.0
LATELY_MS = 40_000
"""Figures are republished at least every 30 s."""


@click.group(cls=Group, epilog="Example: slacktide topics plan --bootstrap kafka-1:9092")
def command() -> None:
    """Plan, create, list and read topics; show consumer lag."""


@command.command(epilog="Example: slacktide topics plan --bootstrap kafka-1:9092 || slacktide topics apply")
@settings.bootstrap_option
def plan(bootstrap: Cluster) -> None:
    """Show how the Kafka cluster differs from the table of topics.

    Exit code 0: no difference; 2: something differs; 1: Kafka could not be read.
    """
    found = asyncio.run(_changes(bootstrap))
    show(plan_text(found))
    if found:
        raise SystemExit(PENDING)


@command.command(epilog="Example: slacktide topics apply --bootstrap kafka-1:9092")
@settings.bootstrap_option
@click.option("--wait", is_flag=True, help="Wait while Kafka cannot be reached, and print why.")
def apply(bootstrap: Cluster, *, wait: bool) -> None:
    """Create missing topics and set differing settings. Delete nothing.

    The partition count and replication of existing topics stay. The command reports where they differ.
    """

    async def applied() -> list[Change]:
        found = await (_awaited_changes(bootstrap) if wait else _changes(bootstrap))
        if any(change.kind == "create" for change in found):
            await create_topics(bootstrap)
        if different := {change.topic: change.config for change in found if change.kind == "set"}:
            await set_configs(bootstrap, different)
        return found

    show(plan_text(asyncio.run(applied())))


async def _changes(bootstrap: Cluster) -> list[Change]:
    there = await describe_topics(bootstrap, [topic.name for topic in TOPICS])
    return changes(TOPICS, there, await broker_count(bootstrap))


async def _awaited_changes(bootstrap: Cluster) -> list[Change]:
    """Wait until Kafka answers. Raises RightsError if it denies the request."""
    backoff, why = Backoff(RETRY_S, RETRY_MAX_S), ""
    while True:
        try:
            return await _changes(bootstrap)
        except RightsError:
            raise
        except LogError as exc:
            if str(exc) != why:
                show(f"waiting for Kafka: {exc}", err=True)
            why = str(exc)
            await asyncio.sleep(backoff.next_s())


@command.command(name="list", epilog="Example: slacktide topics list --bootstrap kafka-1:9092")
@settings.bootstrap_option
@click.option("--table", "table_only", is_flag=True, help="Print the table of topics without connecting to Kafka.")
def list_(bootstrap: Cluster, *, table_only: bool) -> None:
    """List the topics: key, partitions, retention, writers, readers, and the current number of records."""
    there = None
    if not table_only:
        there = asyncio.run(describe_topics(bootstrap, [topic.name for topic in TOPICS]))
    head = ["TOPIC", "KEY", "PARTITIONS", "KEPT", "CLEANUP", "REPLICATION", "ACKS", "PRODUCERS", "CONSUMERS"]
    rows = []
    for topic in TOPICS:
        kept = "newest record of each key" if topic.retention_ms is None else f"{topic.retention_ms / HOUR_MS:g} h"
        row: list[object] = [topic.name, topic.key, topic.partitions, kept, topic.cleanup, topic.replication]
        row += [topic.acks, ", ".join(topic.producers), ", ".join(topic.consumers)]
        if there is not None:
            row.append(_live(there.get(topic.name)))
        rows.append(row)
    show(table(head if there is None else [*head, "LIVE"], rows))


def _live(state: TopicState | None) -> str:
    if state is None:
        return "missing; create it: slacktide topics apply"
    records = sum(state.end.values()) - sum(state.begin.values())
    partitions = count(state.partitions, "partition")
    return f"{partitions}, replication {state.replication}, {count(records, 'record')}"


@command.command(epilog="Example: slacktide topics tail outcome --key node-1 --since 5m --follow")
@click.argument("topic")
@settings.bootstrap_option
@click.option("--key", type=Name(), help="Only records with this key, such as a node's name.")
@click.option("--since", type=Duration(), help="Only records of the last DURATION: 90s, 5m, 2h or 1d.")
@click.option("-n", "--last", type=click.IntRange(1), help=f"Only the last N records; without --since: {LAST}.")
@click.option("--follow", is_flag=True, help="Follow new records, until Ctrl-C.")
@click.option("--headers", is_flag=True, help="Print headers, too, before the body. JSON always has them.")
@output_option("text", "json")
def tail(
    topic: str,
    *,
    bootstrap: Cluster,
    key: str | None,
    since: int | None,
    last: int | None,
    follow: bool,
    headers: bool,
    output: str,
) -> None:
    """Print a topic's decoded records, one per line: time, partition:offset, key, body.

    Short names are accepted: sample, node.sample, node.sample.v2. Heartbeats (docs/silence.md) are omitted. A sample
    has one line per pod. Without --key, names of pods appear after the next keyframe.

    With -o json: one object per line, {"topic", "partition", "offset", "timestamp_ms", "key", "headers", "body"}. A
    sample names its pods if their list is known; otherwise it is in columns. A body that cannot be decoded is null, and
    "error" contains the reason. A null body without "error" is a deletion.
    """
    meant = topic_named(topic)
    since_ms = None if since is None else SystemClock().wall_ms() - since
    limit = last if last is not None or since is not None else LAST
    form = "json" if output == "json" else "headers" if headers else "text"
    asked = _Asked(topic=meant.name, key=key, since_ms=since_ms, limit=limit, follow=follow)
    try:
        asyncio.run(_print(bootstrap, meant, asked, form))
    except KeyboardInterrupt:  # how --follow ends
        show()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The selected records of a topic."""

    topic: str
    key: str | None
    since_ms: int | None
    limit: int | None
    """The number of newest records; None: all."""
    follow: bool


async def _print(bootstrap: Cluster, topic: Topic, asked: _Asked, form: str) -> None:
    samples = SampleReader() if topic in (SAMPLE, BACKFILL) else None
    if samples is not None and asked.key is not None:  # the node's earlier keyframes name its pods
        since_ms = (asked.since_ms or SystemClock().wall_ms()) - LISTED_MS
        async with aclosing(read_topic(bootstrap, asked.topic, since_ms=since_ms, key=asked.key)) as records:
            async for record in records:
                with suppress(BadMessageError):
                    samples.read(record)
    async with aclosing(_records(bootstrap, asked)) as records:
        async for record in records:
            if form == "json":
                show_json(json_line(record, samples))
                continue
            if form == "text":
                record = msgspec.structs.replace(record, headers=())  # noqa: PLW2901 - what is not shown
            show(line(record, topic) if samples is None else sample_lines(record, topic, samples))


async def _records(bootstrap: Cluster, asked: _Asked) -> AsyncGenerator[Record, None]:
    """Yield existing records, then with --follow new ones."""
    state = (await describe_topics(bootstrap, [asked.topic])).get(asked.topic)
    if state is None:
        raise LogError(f"{bootstrap}: topic {asked.topic} does not exist; create it: slacktide topics apply")
    found: list[Record] = []
    if asked.limit is not None and asked.topic in FIGURES and asked.key is None and asked.since_ms is None:
        lately_ms = SystemClock().wall_ms() - LATELY_MS
        found = [one async for one in _last(_there(bootstrap, replace(asked, since_ms=lately_ms), state), asked.limit)]
    if found and len(found) == asked.limit:
        for record in found:
            yield record
    else:
        async with aclosing(_there(bootstrap, asked, state)) as there:
            async for record in there if asked.limit is None else _last(there, asked.limit):
                yield record
    if asked.follow:
        coming = read_topic(bootstrap, asked.topic, follow=True, key=asked.key, start=state.end)
        async with aclosing(coming):
            async for record in coming:
                if not _beat(record):
                    yield record


def _beat(record: Record) -> bool:
    return record.topic in FIGURES and is_heartbeat(record.key)


async def _there(bootstrap: Cluster, asked: _Asked, state: TopicState) -> AsyncGenerator[Record, None]:
    """Yield records before the end offsets in ``state``. Later records are followed."""
    first = state.begin
    # Without a key, the last records of each partition include the last of all. Records of one key, and those among
    # heartbeats, may be anywhere.
    if asked.limit is not None and asked.key is None and asked.topic not in FIGURES:
        first = {part: max(state.begin[part], end - asked.limit) for part, end in state.end.items()}
    reading = read_topic(bootstrap, asked.topic, since_ms=asked.since_ms, key=asked.key, start=first)
    async with aclosing(reading):
        async for record in reading:
            if record.offset < state.end[record.partition] and not _beat(record):
                yield record


async def _last(records: AsyncIterator[Record], limit: int) -> AsyncGenerator[Record, None]:
    """Return the newest ``limit`` records by time, from partitions in any order."""
    newest: list[tuple[int, int, int, Record]] = []
    async for record in records:
        heapq.heappush(newest, (record.timestamp_ms, record.partition, record.offset, record))
        if len(newest) > limit:
            heapq.heappop(newest)
    for *_, record in sorted(newest):
        yield record


command.add_command(acl_command)
command.add_command(strimzi_command)


@command.command(epilog="Example: slacktide topics export day.jsonl.gz --since 2026-03-01T12:00Z --until 1h")
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
def export(
    file: Path, *, bootstrap: Cluster, since: Moment | None, until: Moment | None, topics: tuple[str, ...]
) -> None:
    """Write a time span of the topics to FILE as JSON lines, compressed if its name ends in .gz.

    The file contains all records of policy and inventory, and those of other topics in the span. Samples begin 70 s
    before it, because later samples refer to their pod lists and facts.
    """
    from slacktide.deploy.cli.replay import source  # noqa: PLC0415 - loads the streams' Kafka: not for --help
    from slacktide.schemas.heartbeat import is_heartbeat  # noqa: PLC0415
    from slacktide.streams.analysis.replay import lines  # noqa: PLC0415
    from slacktide.streams.records import FIGURES  # noqa: PLC0415

    now_ms = SystemClock().wall_ms()
    until_ms = now_ms if until is None else until.at(now_ms)
    since_ms = 0 if since is None else since.at(now_ms)
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


@command.command(epilog="Example: slacktide topics lag --bootstrap kafka-1:9092 --group slacktide-stream")
@settings.bootstrap_option
@settings.option("--group", default=STREAM_GROUP, help="Consumer group of the workers.")
def lag(bootstrap: Cluster, group: str) -> None:
    """Show the lag of the workers' consumer group by partition, in records and seconds. Agents use no group."""
    parts = asyncio.run(group_lag(bootstrap, group, [SAMPLE.name]))
    if not parts:
        raise LogError(f"{bootstrap}: topic {SAMPLE.name} does not exist; create it: slacktide topics apply")
    head = ["GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "RECORDS", "SECONDS"]
    rows: list[list[object]] = []
    for part in parts:
        if part.records:
            committed = "-" if part.committed is None else part.committed
            seconds = round(part.seconds, 1)
            rows.append([group, part.topic, part.partition, committed, part.end, part.records, seconds])
    if rows:
        show(table(head, rows))
    behind, longest_s = sum(part.records for part in parts), max(part.seconds for part in parts)
    of_all = f"{len(rows)} of {count(len(parts), 'partition')}"
    show(f"{count(behind, 'record')}, {longest_s:.1f} s behind, in {of_all}")
    if all(part.committed is None for part in parts):
        show(f"group {group} has no committed offsets: no worker has run, or it uses another --group")
