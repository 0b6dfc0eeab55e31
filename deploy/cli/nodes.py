"""``slacktide nodes`` and ``slacktide top``: an overview of all nodes, problems first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.suggestions import NotFoundError, near
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import count, instant, output_option, rendered, show, show_json, table
from slacktide.schemas.connection import Cluster

if TYPE_CHECKING:  # not needed for --help
    from slacktide.streams.analysis.explain.node import NodeRow, Sort


BAD = frozenset({"problem", "warning"})
SORTS = ("problem", "name", "used", "offered", "free", "age")
OUTPUTS = ("text", "wide", "json", "yaml")
FOR_PEOPLE = frozenset({"text", "wide"})
"""Outputs for people; the others are for programs."""
_HEAD = ["NODE", "STATE", "USED", "OFFERED", "FREE", "LIMIT", "AGE"]
_WIDE = ["MEMORY", "OFFERED MEMORY", "FREE MEMORY", "POLICY"]
_WHY_CHARS = 100


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options shared by ``nodes`` and ``top``."""
    for option in (
        click.option("--problems", is_flag=True, help="Only nodes with a problem or a warning."),
        click.option(
            "--sort",
            type=click.Choice(SORTS),
            default="problem",
            show_default=True,
            help="Sort order: the worst problem, the name, the largest share used, the most offered or free, or the "
            "oldest figures first.",
        ),
        settings.bootstrap_option,
        click.argument("names", nargs=-1, metavar="[NAME]..."),
    ):
        command = option(command)
    return command


@click.command(epilog="Example: slacktide nodes 'gpu-*' --sort used -o wide --bootstrap kafka-1:9092")
@options
@output_option(*OUTPUTS)
@click.option("--watch", is_flag=True, help="Refresh each second, until Ctrl-C.")
def command(
    bootstrap: Cluster, *, names: tuple[str, ...], sort: Sort, problems: bool, output: str, watch: bool
) -> None:
    """List all nodes, or those whose name matches a pattern: batch resources, use, limit and problems of each.

    STATE is ok, note, warning or problem, and WHY the worst finding of `slacktide explain node`. USED is the node's CPU
    over the policy's window. OFFERED is batch-cpu, FREE the part of it that no pod requests. LIMIT is that of
    best-effort pods. AGE is the time since a worker published the figures or covered them by a heartbeat.

    With -o json or yaml: a list of {"node", "severity", "fact", "why", "age_ms", "capacity_cpu_milli",
    "used_cpu_milli", "batch_cpu_milli", "batch_free_cpu_milli", "capacity_mem_bytes", "used_mem_bytes",
    "batch_mem_bytes", "batch_free_mem_bytes", "limits", "policy_version"}.
    """
    _run(lambda: shown(bootstrap, names, sort, output, problems=problems), watch=watch, clear=output in FOR_PEOPLE)


@click.command(epilog="Example: slacktide top 'gpu-*' --sort used --bootstrap kafka-1:9092")
@options
@output_option(*OUTPUTS, default="wide")
@click.option(
    "--watch/--no-watch",
    default=None,
    help="Refresh each second, until Ctrl-C, or print once. Default: refresh, but json and yaml once.",
)
def top(
    bootstrap: Cluster, *, names: tuple[str, ...], sort: Sort, problems: bool, output: str, watch: bool | None
) -> None:
    """Show all nodes, or those whose name matches a pattern, refreshed each second. Like nodes -o wide --watch."""
    for_people = output in FOR_PEOPLE
    watch = for_people if watch is None else watch
    _run(lambda: shown(bootstrap, names, sort, output, problems=problems), watch=watch, clear=for_people)


def _run(text: Callable[[], str], *, watch: bool, clear: bool) -> None:
    """Print once, or each second until Ctrl-C."""

    async def renewed() -> None:
        while True:
            now = await asyncio.to_thread(text)
            show(now, clear=True) if clear else show_json(now)
            await asyncio.sleep(1)

    if not watch:
        show(text()) if clear else show_json(text())
        return
    try:
        asyncio.run(renewed())
    except KeyboardInterrupt:  # how a --watch ends
        show()


def shown(bootstrap: Cluster, names: Sequence[str], sort: Sort, output: str, *, problems: bool) -> str:
    """Read Kafka and format the rows. Raises LogError if it cannot be read, NotFoundError if no node matches."""
    from slacktide.deploy.cli.explain.log import node_logs, opened  # noqa: PLC0415 - loads Kafka: not for --help
    from slacktide.streams.analysis.explain.node import in_order, node_row  # noqa: PLC0415

    async def read() -> list[NodeRow]:
        now_ms = SystemClock().wall_ms()
        async with opened(bootstrap, now_ms) as log:
            return [node_row(one, now_ms) for one in await node_logs(log)]

    rows = asyncio.run(read())
    chosen = [row for row in rows if not names or any(fnmatchcase(row.node, name) for name in names)]
    if names and not chosen:
        known = near(names[0], [row.node for row in rows])
        raise NotFoundError(f"{bootstrap}: no node matches {', '.join(names)}; {known}")
    ordered = in_order([row for row in chosen if not problems or row.severity in BAD], sort)
    return rendered(ordered, output, lambda: text_of(ordered, chosen, wide=output == "wide"))


def text_of(rows: Sequence[NodeRow], of_all: Sequence[NodeRow], *, wide: bool) -> str:
    """Format a table and a summary.

    Args:
        rows: to show.
        of_all: to summarize.
        wide: with memory and policy.
    """
    head = [*_HEAD, *(_WIDE if wide else []), "WHY"]
    lines = [table(head, [_cells(row, wide=wide) for row in rows])] if rows else []
    offered, free, used, capacity = (
        sum(getattr(row, name) or 0 for row in of_all)
        for name in ("batch_cpu_milli", "batch_free_cpu_milli", "used_cpu_milli", "capacity_cpu_milli")
    )
    bad = sum(row.severity in BAD for row in of_all)
    share = f" ({100 * used / capacity:.0f}%)" if capacity else ""
    sums = f"used {used:,}m of {capacity:,}m{share}, batch-cpu offered {offered:,}m, free {free:,}m"
    when = instant(SystemClock().wall_ms())
    return "\n".join([*lines, f"{count(len(of_all), 'node')}, {bad} with a problem or a warning; {sums}; {when}"])


def _cells(row: NodeRow, *, wide: bool) -> list[object]:
    from slacktide.deploy.cli.explain.node_text import limits_text  # noqa: PLC0415

    cells: list[object] = [
        row.node,
        row.severity,
        _milli(row.used_cpu_milli, row.capacity_cpu_milli),
        _milli(row.batch_cpu_milli),
        _milli(row.batch_free_cpu_milli),
        "-" if row.limits is None else limits_text(row.limits),
        "-" if row.age_ms is None else f"{row.age_ms / 1_000:.1f}s",
    ]
    if wide:
        cells += [
            _gib(row.used_mem_bytes, row.capacity_mem_bytes),
            _gib(row.batch_mem_bytes),
            _gib(row.batch_free_mem_bytes),
            row.policy_version or "-",
        ]
    # The first part of the finding's text; `slacktide explain node` has all of it.
    brief = row.why.partition("; ")[0]
    brief = brief if len(brief) <= _WHY_CHARS else f"{brief[:_WHY_CHARS]}…"
    return [*cells, f"{row.fact}: {brief}" if row.fact else ""]


def _milli(part: int | None, whole: int | None = None) -> str:
    return "-" if part is None else f"{part:,}m{_share(part, whole)}"


def _gib(part: int | None, whole: int | None = None) -> str:
    return "-" if part is None else f"{part / 2**30:.1f}Gi{_share(part, whole)}"


def _share(part: int, whole: int | None) -> str:
    return f" {100 * part / whole:.0f}%" if whole else ""
