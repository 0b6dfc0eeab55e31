"""``slacktide dead-letter``: records that nobody could use, and why."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import click

from slacktide.agents.clock import SystemClock
from slacktide.agents.kafka import Record, read_topic
from slacktide.deploy.cli.records import letter_row, letter_text
from slacktide.deploy.cli.text import Duration, table
from slacktide.deploy.cli.topics import bootstrap_option
from slacktide.schemas.errors import LogError
from slacktide.schemas.topics import DEAD_LETTER


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
