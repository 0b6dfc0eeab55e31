"""``slacktide replay``: a trace decided again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec
from click.core import ParameterSource

from slacktide.agents.files import load_yaml
from slacktide.deploy.cli import settings
from slacktide.deploy.cli.moment import Moment, MomentType
from slacktide.deploy.cli.text import Name, show
from slacktide.schemas import policy as policies
from slacktide.schemas.connection import Cluster

if TYPE_CHECKING:
    from slacktide.streams.replay.replay import Result
    from slacktide.streams.replay.whatif import Change

SHOWN = 10


@click.command(epilog="Example: slacktide replay day.jsonl.gz --policy looser.yaml")
@click.argument("file", required=False, type=settings.file())
@settings.option("--bootstrap", type=settings.Kafka(), help="Read from Kafka instead of a file.")
@click.option("--since", type=MomentType(), help="Start: a time, or a duration before the end.")
@click.option("--until", type=MomentType(), help="End: a time, or a duration before the end of the records.")
@click.option("--node", "nodes", type=Name(), multiple=True, help="Only this node. Repeat for several.")
@click.option(
    "--policy", type=settings.file(), help="Decide by the policy in this ConfigMap, and print what would differ."
)
@click.option(
    "--first", type=click.IntRange(0), default=SHOWN, show_default=True, help="Number of differences to print in full."
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="CPUs of this machine",
    help="Number of processes, which divide the partitions.",
)
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(file: Path | None, *, bootstrap: Cluster | None, output: str, **asked: Any) -> None:
    """Decide recorded samples again with the worker's own code, and compare the result with the recorded answers.

    FILE comes from `slacktide topics export`. Exit code 0: all compared records are equal; 1: some differ, or none
    could be compared. With --policy: print what another policy would have changed. Exit code 1: no sample was decided.
    """
    bootstrap = one_source(file, bootstrap)
    from slacktide.deploy.cli.replay import report  # noqa: PLC0415 - loads the streams: not for --help

    result = _asked(file, bootstrap, **asked)
    click.echo(msgspec.json.encode(result)) if output == "json" else show(report.text_of(result))
    if not report.fine(result):
        raise click.exceptions.Exit(1)


def one_source(file: Path | None, bootstrap: Cluster | None) -> Cluster | None:
    """The log to read; None: the file. From the environment it says where the log is, not that it is meant.

    Raises:
        click.UsageError: both are named, or none.

    """
    context = click.get_current_context()
    if file is not None and context.get_parameter_source("bootstrap") is ParameterSource.ENVIRONMENT:
        bootstrap = None
    if (file is None) == (bootstrap is None):
        raise click.UsageError("name a FILE, or --bootstrap for a live log")
    return bootstrap


def _asked(  # one argument per option
    file: Path | None,
    bootstrap: Cluster | None,
    *,
    since: Moment | None,
    until: Moment | None,
    nodes: tuple[str, ...],
    policy: Path | None,
    first: int,
    jobs: int,
) -> Result | Change:
    from slacktide.deploy.cli.replay import running, source  # noqa: PLC0415
    from slacktide.deploy.cli.replay.jobs import Plan  # noqa: PLC0415

    other = None if policy is None else policies.parse(load_yaml(policy), str(policy)).policy

    def plan(opened: source.Opened) -> Plan:
        return Plan(policies=opened.policies, since_ms=opened.since_ms, nodes=nodes, kept=first, other=other)

    return cast("Result | Change", running.decided(source.Where(file, bootstrap, since, until), plan, nodes, jobs))
