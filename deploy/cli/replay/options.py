"""Common options for commands on a trace: records and number of processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from slacktide.deploy.cli.moment import MomentType
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import Name
from slacktide.schemas.connection import Cluster

C = TypeVar("C", bound=Callable[..., Any])

jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="CPUs of this machine",
    help="Number of processes, among which partitions are divided.",
)


def trace_options(command: C) -> C:
    """Add FILE or ``--bootstrap``, a span and nodes, in this order."""
    for add in reversed(_TRACE):
        command = add(command)
    return command


_TRACE: tuple[Callable[[Any], Any], ...] = (
    click.argument("file", required=False, type=settings.file()),
    settings.option("--bootstrap", type=settings.Kafka(), help="Read from Kafka instead of a file."),
    click.option("--since", type=MomentType(), help="Start: a time, or a duration before the end."),
    click.option("--until", type=MomentType(), help="End: a time, or a duration before the end of the records."),
    click.option("--node", "nodes", type=Name(), multiple=True, help="Only this node. Repeat for several."),
)


def one_source(file: Path | None, bootstrap: Cluster | None) -> Cluster | None:
    """Return the Kafka cluster to read; None: the file. An address from the environment does not override FILE.

    Raises:
        click.UsageError: both or none are given.
    """
    context = click.get_current_context()
    if file is not None and context.get_parameter_source("bootstrap") is ParameterSource.ENVIRONMENT:
        bootstrap = None
    if (file is None) == (bootstrap is None):
        raise click.UsageError("nothing to read: give a FILE, or --bootstrap to read from Kafka")
    return bootstrap
