"""``slacktide replay``: decides a trace again. Its options are those of other commands on a trace, too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from slacktide.agents.files import load_yaml
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import Moment, MomentType, Name, output_option, show_result
from slacktide.schemas import policy as policies
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
    for add in (
        click.option("--node", "nodes", type=Name(), multiple=True, help="Only this node. Repeat for several."),
        click.option("--until", type=MomentType(), help="End: a time, or a duration before the end of the records."),
        click.option("--since", type=MomentType(), help="Start: a time, or a duration before the end."),
        settings.option("--bootstrap", type=settings.Kafka(), help="Read from Kafka instead of a file."),
        click.argument("file", required=False, type=settings.file()),
    ):
        command = add(command)
    return command


def one_source(file: Path | None, bootstrap: Cluster | None) -> Cluster | None:
    """Return the Kafka cluster to read; None: the file. An address from the environment does not override FILE.

    Raises click.UsageError if both or none are given.
    """
    context = click.get_current_context()
    if file is not None and context.get_parameter_source("bootstrap") is ParameterSource.ENVIRONMENT:
        bootstrap = None
    if (file is None) == (bootstrap is None):
        raise click.UsageError("nothing to read: give a FILE, or --bootstrap to read from Kafka")
    return bootstrap


@click.command(epilog="Example: slacktide replay day.jsonl.gz --policy looser.yaml")
@trace_options
@click.option(
    "--policy", type=settings.file(), help="Decide by the policy in this ConfigMap, and print the differences."
)
@click.option(
    "--first", type=click.IntRange(0), default=10, show_default=True, help="Number of differences to print in full."
)
@click.option("--queue", is_flag=True, help="Decide the turns of the job queue again, instead of samples.")
@jobs_option
@output_option("text", "json", short=False)
def command(  # noqa: PLR0913 - one argument per option
    file: Path | None,
    *,
    bootstrap: Cluster | None,
    since: Moment | None,
    until: Moment | None,
    nodes: tuple[str, ...],
    policy: Path | None,
    first: int,
    queue: bool,
    jobs: int,
    output: str,
) -> None:
    """Decide recorded samples again with the worker's own code, and compare the result with the recorded answers.

    FILE comes from `slacktide topics export`. Exit code 0: all compared records are equal; 1: some differ, or none
    could be compared. With --policy: print what another policy would have changed. Exit code 1: no sample was decided.
    With --queue: the same for the turns of `slacktide queue run`, by their own records.
    """
    bootstrap = one_source(file, bootstrap)
    from slacktide.deploy.cli.replay import report, source  # noqa: PLC0415 - loads the streams: not for --help
    from slacktide.deploy.cli.replay.jobs import Plan, decided  # noqa: PLC0415

    result: Any
    if queue and (policy is not None or nodes or since is not None):
        raise click.UsageError("--queue decides all turns by their own records: remove --policy, --node and --since")
    if queue:
        result = report.queue_decided(source.Where(file, bootstrap, None, until), first)
    else:
        other = None if policy is None else policies.parse(load_yaml(policy), str(policy)).policy

        def plan(opened: source.Opened) -> Plan:
            return Plan(policies=opened.policies, since_ms=opened.since_ms, nodes=nodes, kept=first, other=other)

        result = decided(source.Where(file, bootstrap, since, until), plan, nodes, jobs)
    show_result(result, output, lambda: report.text_of(result))
    if not report.fine(result):
        raise click.exceptions.Exit(1)
