"""``slacktide policy compare``: compares a shadow policy with the one in force, live or for the past."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from slacktide.agents.clock import SystemClock
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import Duration, Name, show, show_json
from slacktide.schemas.connection import Cluster, options
from slacktide.schemas.errors import LogError

if TYPE_CHECKING:  # not needed for --help
    from slacktide.streams.comparison import Comparison
    from slacktide.streams.kafka import Tail
    from slacktide.streams.records import Record

_Draw = Callable[[float], None]
REFRESH_S = 1.0
FETCH_WAIT_MS = 200
FOLLOWED_MS = 30_000


class NoShadowError(LogError):
    """Kafka has no answers of a shadow policy."""


@click.command(epilog="Example: slacktide policy compare --bootstrap kafka-1:9092 --for 5m")
@settings.bootstrap_option
@click.option("--for", "for_ms", type=Duration(), help="How long to follow new records. Default 30s without --since.")
@click.option("--since", "since_ms", type=Duration(), help="How far back to read: 90s, 5m, 2h or 1d.")
@click.option("--node", type=Name(), help="Only records of this node.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def compare(bootstrap: Cluster, for_ms: int | None, since_ms: int | None, node: str | None, output: str) -> None:
    """Compare the real answers with those of a shadow (slacktide stream --shadow OTHER.yaml).

    It prints the share of equal answers, and differences: limits by rule, evictions, settings and resources. Totals
    come first, then nodes, the worst first. On a terminal it refreshes each second until Ctrl-C. Otherwise it prints
    once, at the end or on Ctrl-C.

    A shadow decides from the limits that the real policy set. The figures show its next step, not the long-term
    result. For that, replay the day: slacktide replay --policy OTHER.yaml.

    With --output json: {"policies": [{"real", "shadow", "samples"}, ...], "without_shadow", "all": FIGURES, "nodes":
    [FIGURES, ...]}, FIGURES: {"node", "agreement", "samples", "same", "undecided", "limits": {rule: {"tighter",
    "looser", "mean_milli", "greatest_milli"}}, "evicts_only_real": {pod: samples}, "evicts_only_shadow", "settings":
    {rule: samples}, "batch_cpu_milli": [real, shadow], "batch_mem_bytes": [real, shadow]}; differences are the
    shadow's minus the real one's. Exit code 1: there is no shadow, or Kafka cannot be read.
    """
    from slacktide.deploy.cli.policy.compared import as_json, shown  # noqa: PLC0415
    from slacktide.deploy.cli.suggestions import NotFoundError, near  # noqa: PLC0415
    from slacktide.streams.comparison import Comparison  # noqa: PLC0415

    follow_ms = for_ms if for_ms is not None else 0 if since_ms is not None else FOLLOWED_MS
    compared = Comparison()
    live = output == "text" and sys.stdout.isatty() and follow_ms > 0

    def draw(waited_s: float) -> None:
        if live:
            click.clear()
            show(shown(compared, waited_s) if compared.shadows else "waiting for the shadow's first answer ...")

    reading = _Reading(bootstrap, node, compared)
    with suppress(KeyboardInterrupt):
        asyncio.run(reading.run(since_ms or 0, follow_ms, draw))
    if not compared.shadows and reading.shadowed:
        raise NotFoundError(
            f"{bootstrap}: no shadow has answered for node {node}; {near(node or '', reading.shadowed)}"
        )
    if not compared.shadows:
        raise NoShadowError(
            f"{bootstrap}: no shadow has answered in {reading.covered_s:.0f} s: start the workers with "
            f"`slacktide stream {options(bootstrap)} --shadow OTHER.yaml`"
        )
    if output == "json":
        show_json(as_json(compared))
    elif not live:
        show(shown(compared, reading.covered_s))


class _Reading:
    """Reads Kafka into a comparison."""

    def __init__(self, bootstrap: Cluster, node: str | None, compared: Comparison) -> None:
        self._bootstrap = bootstrap
        self._key = None if node is None else node.encode()
        self._compared = compared
        self._from_ms = 0
        self.covered_s = 0.0
        """Time that was read back and followed."""
        self.shadowed: set[str] = set()
        """Nodes with decisions of a shadow, including unselected ones."""

    async def run(self, since_ms: int, follow_ms: int, draw: _Draw) -> None:
        """Read back, then follow. Raises LogError if Kafka cannot be read."""
        from slacktide.schemas.topics import (  # noqa: PLC0415
            ALLOCATABLE,
            COMMAND,
            SAMPLE,
            SHADOW_ALLOCATABLE,
            SHADOW_COMMAND,
        )
        from slacktide.streams.kafka import WHOLE, Tail, places_of, present  # noqa: PLC0415

        topics = [topic.name for topic in (SAMPLE, COMMAND, SHADOW_COMMAND)]
        sold = [topic.name for topic in (ALLOCATABLE, SHADOW_ALLOCATABLE)]
        partitions = await present(self._bootstrap, [*topics, *sold])
        self._from_ms = SystemClock().wall_ms() - since_ms
        self.covered_s = since_ms / 1_000
        async with Tail(self._bootstrap, FETCH_WAIT_MS) as tail:
            since = dict.fromkeys(topics, self._from_ms) | dict.fromkeys(sold, WHOLE)
            for record in (await tail.read(places_of(partitions, since))).records:
                self._take(record)
            await self._follow(tail, follow_ms, draw)

    async def _follow(self, tail: Tail, follow_ms: int, draw: _Draw) -> None:
        loop = asyncio.get_running_loop()
        begin_s = drawn_s = loop.time()
        back_s = self.covered_s
        while (now_s := loop.time()) < begin_s + follow_ms / 1_000:
            for record in await tail.more():
                self._take(record)
            self.covered_s = back_s + loop.time() - begin_s
            if now_s - drawn_s >= REFRESH_S:
                drawn_s = now_s
                draw(now_s - begin_s)

    def _take(self, record: Record) -> None:
        from slacktide.schemas.topics import SHADOW_COMMAND  # noqa: PLC0415
        from slacktide.streams.comparison import report  # noqa: PLC0415

        if record.topic == SHADOW_COMMAND.name and record.key is not None and record.timestamp_ms >= self._from_ms:
            self.shadowed.add(record.key.decode(errors="backslashreplace"))
        if self._key is None or record.key == self._key:
            report(self._compared, record, self._from_ms)
