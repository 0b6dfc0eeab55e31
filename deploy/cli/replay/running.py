"""Runs a plan over a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from slacktide.deploy.cli.not_found import NotFoundError, near
from slacktide.deploy.cli.replay import source
from slacktide.deploy.cli.replay.jobs import Jobs, Plan
from slacktide.deploy.runtime.text import instant
from slacktide.streams.records import Record, text_of
from slacktide.streams.replay.lines import REPLAYED
from slacktide.streams.rows import SAMPLE_NAMES

if TYPE_CHECKING:
    from slacktide.streams.advise.trials import Tried
    from slacktide.streams.replay.replay import Result
    from slacktide.streams.replay.whatif import Change


def decided(
    where: source.Where, plan: Callable[[source.Opened], Plan], nodes: tuple[str, ...], jobs: int
) -> Result | Change | Tried:
    """Run a plan on a trace.

    Args:
        where: the trace.
        plan: built from the data known before the first record.
        nodes: only these; empty: all.
        jobs: maximum number of processes.

    Raises:
        click.UsageError: the span's end precedes its start.
        NotFoundError: a node has no samples in it.
    """
    made: list[Jobs] = []
    known: set[bytes | None] = set()

    def begin(opened: source.Opened) -> source.Sink:
        if opened.since_ms >= opened.until_ms:
            raise click.UsageError(
                f"--since ({instant(opened.since_ms)}) must be earlier than the end of the span "
                f"({instant(opened.until_ms)})"
            )
        made.append(Jobs(plan(opened), jobs, forks=where.file is not None))

        def take(some: Sequence[Record]) -> None:
            known.update(record.key for record in some if record.topic in SAMPLE_NAMES)
            made[0].take(some)

        return take if nodes else made[0].take

    source.read(where, REPLAYED, begin)
    result = made[0].finish()
    names = {text_of(key) for key in known if key is not None}
    if names and (unknown := next((node for node in nodes if node not in names), None)):
        raise NotFoundError(f"{where}: no sample in the span is from node {unknown}; {near(unknown, names)}")
    return result
