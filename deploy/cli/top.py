"""``slacktide top``: ``slacktide nodes``, renewed each second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slacktide.deploy.cli import nodes
from slacktide.schemas.connection import Cluster

if TYPE_CHECKING:
    from slacktide.streams.explain.nodes import Sort


@click.command(epilog="Example: slacktide top --sort used --bootstrap kafka-1:9092")
@nodes.options
def command(bootstrap: Cluster, *, names: tuple[str, ...], sort: Sort, problems: bool) -> None:
    """Show all nodes, or those whose name matches a pattern, renewed each second, until Ctrl-C. Like nodes --watch."""
    nodes.run(lambda: nodes.shown(bootstrap, names, sort, "wide", problems=problems), watch=True, clear=True)
