"""``slacktide replay`` and ``slacktide advise``: decide a trace again, by its own policies or others."""

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
from slacktide.schemas.errors import ConfigError, Finding

SUPPRESS, EVICT = "cpuSuppressThresholdPercent", "memoryEvictThresholdPercent"
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
    show_result(result, output, lambda: report.text_of(result), indent=0)
    if not report.fine(result):
        raise click.exceptions.Exit(1)


class Percents(click.ParamType):
    """Comma-separated whole percents."""

    name = "PERCENT,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Reject values outside of 1 to 100."""
        words = [word.strip() for word in str(value).split(",")]
        if wrong := next((word for word in words if not word.isdecimal() or not 1 <= int(word) <= 100), None):
            self.fail(f"{wrong!r} is not a whole percent from 1 to 100; accepted: such as 55,65,75", param, ctx)
        if "" in words:
            self.fail(f"{value!r} lacks a percent; accepted: such as 55,65,75", param, ctx)
        return tuple(map(int, words))


@click.command(epilog="Example: slacktide advise day.jsonl.gz --svg advice.svg")
@trace_options
@click.option("--policy", type=settings.file(), help="Vary this ConfigMap instead of the newest recorded policy.")
@click.option("--suppress", type=Percents(), help=f"Values of {SUPPRESS} to try, in percent.  [default: 45,50,...,85]")
@click.option(
    "--mem-evict", type=Percents(), help=f"Values of {EVICT} to try, in percent.  [default: the policy's own]"
)
@click.option("--grid", "grid_file", type=settings.file(), help="Read the values to try from this YAML file.")
@click.option(
    "--line",
    "line_pct",
    type=click.FloatRange(1, 100),
    default=90,
    show_default=True,
    help="A node whose CPU use is above this percentage puts its latency-sensitive pods at risk.",
)
@click.option("--svg", type=settings.file(), help="Also write the chart to this SVG file.")
@jobs_option
@output_option("text", "json")
def advise(  # noqa: PLR0913 - one argument per option
    file: Path | None,
    *,
    bootstrap: Cluster | None,
    since: Moment | None,
    until: Moment | None,
    nodes: tuple[str, ...],
    policy: Path | None,
    suppress: tuple[int, ...] | None,
    mem_evict: tuple[int, ...] | None,
    grid_file: Path | None,
    line_pct: float,
    svg: Path | None,
    jobs: int,
    output: str,
) -> None:
    """Replay recorded days under a grid of policies: best-effort core-hours and evictions against risk.

    FILE comes from `slacktide topics export`. Each figure has a range. The knee is the policy after which risk rises
    faster than best-effort core-hours.
    """
    bootstrap = one_source(file, bootstrap)
    if grid_file is not None:
        if suppress or mem_evict:
            raise click.UsageError(
                "--grid already contains the values of --suppress and --mem-evict: remove --grid, or the other two"
            )
        suppress, mem_evict = _grid_of(grid_file)
    from slacktide.deploy.cli.replay import advice  # noqa: PLC0415 - loads the streams: not for --help
    from slacktide.deploy.cli.replay.source import Where  # noqa: PLC0415

    base = None if policy is None else policies.parse(load_yaml(policy), str(policy)).policy
    found = advice.advised(Where(file, bootstrap, since, until), base, (suppress, mem_evict), nodes, line_pct, jobs)
    if svg is not None:
        svg.write_text(advice.svg(found))
    show_result(found, output, lambda: advice.text(found), indent=0)


def _grid_of(file: Path) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Read both lists of thresholds from a file.

    Raises ConfigError: the file does not map the two names to lists of percents.
    """
    read = load_yaml(file)
    accepted = f"{SUPPRESS} and {EVICT}, each with a list of percents"
    if not isinstance(read, dict) or not read or not set(read) <= {SUPPRESS, EVICT}:
        raise ConfigError([Finding(file=str(file), field="the file", value=str(read)[:80], accepted=accepted)])
    for name, values in read.items():
        is_list = isinstance(values, list) and values
        if not is_list or not all(type(one) is int and 1 <= one <= 100 for one in values):
            accepted = "a list of whole percents from 1 to 100"
            raise ConfigError([Finding(file=str(file), field=name, value=str(values)[:80], accepted=accepted)])
    suppress, evict = (tuple(read[name]) if name in read else None for name in (SUPPRESS, EVICT))
    return suppress, evict
