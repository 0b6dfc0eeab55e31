"""``slacktide top``: ``slacktide nodes``, refreshed each second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slacktide.deploy.cli import nodes
from slacktide.schemas.connection import Cluster

if TYPE_CHECKING:
    from slacktide.streams.explain.node import Sort


@click.command(epilog="Example: slacktide top 'gpu-*' --sort used --bootstrap kafka-1:9092")
@nodes.options
@nodes.output_option(default="wide")
@click.option(
    "--watch/--no-watch",
    default=None,
    help="Refresh each second, until Ctrl-C, or print once. Default: refresh, but json and yaml once.",
)
def command(
    bootstrap: Cluster, *, names: tuple[str, ...], sort: Sort, problems: bool, output: str, watch: bool | None
) -> None:
    """Show all nodes, or those whose name matches a pattern, refreshed each second. Like nodes -o wide --watch."""
    for_people = output in nodes.FOR_PEOPLE
    nodes.run(
        lambda: nodes.shown(bootstrap, names, sort, output, problems=problems),
        watch=for_people if watch is None else watch,
        clear=for_people,
    )
