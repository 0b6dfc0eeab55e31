"""``slacktide dead-letter``: records that nobody could use, and why."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing

import click

from slacktide.agents.clock import SystemClock
from slacktide.agents.kafka import Out, Placed, Record, Sender, TopicState, describe_topics, read_topic
from slacktide.deploy.cli.put_back import TOPICS, WHY, Letter, Step, letter_of, steps
from slacktide.deploy.cli.records import letter_row, letter_text, topic_named
from slacktide.deploy.cli.text import Duration, Name, table
from slacktide.deploy.cli.topics import bootstrap_option
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import DEAD_LETTER

SEND_S = 5.0
BATCH = 100


@click.group(epilog="Example: slacktide dead-letter list --since 1h")
def command() -> None:
    """Records that nobody could use, and why."""


@command.command(name="list", epilog="Example: slacktide dead-letter list --since 1h --bootstrap kafka-1:9092")
@bootstrap_option
@click.option("--since", type=Duration(), help="Only those of the last 90s, 5m, 2h or 1d.")
def list_(bootstrap: str, since: int | None) -> None:
    """List dead letters: when, offset, where the record came from, who refused it, why."""
    since_ms = None if since is None else SystemClock().wall_ms() - since
    rows = [letter_row(record) for record in asyncio.run(_letters(bootstrap, since_ms=since_ms))]
    click.echo(table(["TIME", "OFFSET", "FROM", "KEY", "READER", "REASON"], rows) if rows else "no dead letters")


@command.command(epilog="Example: slacktide dead-letter show 42 --bootstrap kafka-1:9092")
@click.argument("offset", type=click.IntRange(0))
@bootstrap_option
def show(offset: int, bootstrap: str) -> None:
    """Show the dead letter at an offset (see list) whole, with the record as it was."""
    found = asyncio.run(_letters(bootstrap, start=offset, stop=offset + 1))
    if not found:
        raise LogError(f"{bootstrap}: no dead letter at offset {offset}: slacktide dead-letter list")
    click.echo(letter_text(found[0]))


@command.command(epilog="Example: slacktide dead-letter replay --topic node.sample --since 1h --dry-run")
@bootstrap_option
@click.option("--topic", help="Only records of this topic.")
@click.option("--since", type=Duration(), help="Only those refused within the last 90s, 5m, 2h or 1d.")
@click.option("--key", type=Name(), help="Only records with this key, such as a node's name.")
@click.option("--dry-run", is_flag=True, help="Say what would be put back, and write nothing.")
def replay(bootstrap: str, *, topic: str | None, since: int | None, key: str | None, dry_run: bool) -> None:
    """Put dead-lettered records back onto the topics that they came from: to the same partition, with the same key.

    For when what refused them has been mended. Each is put back once, however often this is called: a header names its
    dead letter, and what lies behind the record's old place is read first. Records of compacted topics are left where
    their key has been told anew. At least one of --topic, --since and --key says which are meant.
    """
    if topic is None and since is None and key is None:
        raise click.UsageError("which ones? Name --topic, --since or --key; `slacktide dead-letter list` shows all")
    now_ms = SystemClock().wall_ms()
    name = None if topic is None else topic_named(topic).name

    def meant(letter: Letter) -> bool:
        return name in (None, letter.body.topic) and key in (None, letter.body.key)

    told = asyncio.run(_put_back(bootstrap, None if since is None else now_ms - since, meant, now_ms, dry_run=dry_run))
    if told:
        click.echo(
            table(
                ["OFFSET", "FROM", "KEY", "OUTCOME"],
                [(*letter_row(step.letter.record)[1:4], said) for step, said in told],
            )
        )
    fates = Counter(step.fate for step, _ in told)
    would = "would be " if dry_run else ""
    left = fates.total() - fates["put back"] - fates["already there"]
    click.echo(f"{would}put back: {fates['put back']}, earlier: {fates['already there']}, left: {left}")


async def _put_back(
    bootstrap: str, since_ms: int | None, meant: Callable[[Letter], bool], now_ms: int, *, dry_run: bool
) -> list[tuple[Step, str]]:
    """Each letter that is meant, and what came of it, in words."""
    read = [letter_of(record) for record in await _letters(bootstrap, since_ms=since_ms)]
    letters = [letter for letter in read if letter is not None and meant(letter)]
    states = await describe_topics(bootstrap, sorted({letter.body.topic for letter in letters} & TOPICS.keys()))
    there = {name: await _behind(bootstrap, state, letters) for name, state in states.items()}
    told = steps(letters, there, {name: state.partitions for name, state in states.items()}, now_ms)
    if dry_run:
        return [(step, WHY[step.fate]) for step in told]
    placed = iter(await _sent(bootstrap, [step.out for step in told if step.out is not None]))
    return [(step, WHY[step.fate] + (f" at {_said(next(placed))}" if step.out else "")) for step in told]


def _said(placed: Placed) -> str:
    return f"{placed.partition}:{placed.offset}"


async def _behind(bootstrap: str, state: TopicState, letters: Sequence[Letter]) -> list[Record]:
    """What stands in a topic behind the records that the letters are about; all, where it was made anew since."""
    start = dict(state.end)
    for letter in letters:
        part = letter.body.partition
        if letter.body.topic == state.name and part in start:
            start[part] = min(start[part], letter.body.offset + 1 if letter.body.offset < state.end[part] else 0)
    async with aclosing(read_topic(bootstrap, state.name, start=start)) as records:
        return [record async for record in records]


async def _sent(bootstrap: str, outs: Sequence[Out]) -> list[Placed]:
    if not outs:
        return []
    sender = Sender(bootstrap, client_id="slacktide-dead-letter-replay", acks="all", timeout_s=SEND_S)
    try:
        await sender.connect(sorted({out.topic for out in outs}))
        placed = []
        for first in range(0, len(outs), BATCH):
            placed += await sender.send(outs[first : first + BATCH])
        return placed
    finally:
        await sender.close()


async def _letters(
    bootstrap: str, *, since_ms: int | None = None, start: int | None = None, stop: int | None = None
) -> list[Record]:
    """Dead letters from offset ``start`` to before ``stop``; their topic has one partition."""
    found: list[Record] = []
    first = None if start is None else {0: start}
    async with aclosing(read_topic(bootstrap, DEAD_LETTER.name, since_ms=since_ms, start=first)) as records:
        async for record in records:
            if stop is not None and record.offset >= stop:
                break
            found.append(record)
    return found
