"""``slacktide replay``: decides a trace again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from slacktide.agents.files import load_yaml
from slacktide.deploy.cli.moment import Moment
from slacktide.deploy.cli.replay.options import jobs_option, one_source, trace_options
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import show, show_json
from slacktide.schemas import policy as policies
from slacktide.schemas.connection import Cluster

if TYPE_CHECKING:
    from slacktide.deploy.cli.replay.report import QueueResult
    from slacktide.streams.replay.replay import Result
    from slacktide.streams.replay.whatif import Change

SHOWN = 10


@click.command(epilog="Example: slacktide replay day.jsonl.gz --policy looser.yaml")
@trace_options
@click.option(
    "--policy", type=settings.file(), help="Decide by the policy in this ConfigMap, and print the differences."
)
@click.option(
    "--first", type=click.IntRange(0), default=SHOWN, show_default=True, help="Number of differences to print in full."
)
@click.option("--queue", is_flag=True, help="Decide the turns of the job queue again, instead of samples.")
@jobs_option
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(file: Path | None, *, bootstrap: Cluster | None, output: str, queue: bool, **asked: Any) -> None:
    """Decide recorded samples again with the worker's own code, and compare the result with the recorded answers.

    FILE comes from `slacktide topics export`. Exit code 0: all compared records are equal; 1: some differ, or none
    could be compared. With --policy: print what another policy would have changed. Exit code 1: no sample was decided.
    With --queue: the same for the turns of `slacktide queue run`, by their own records.
    """
    bootstrap = one_source(file, bootstrap)
    from slacktide.deploy.cli.replay import report  # noqa: PLC0415 - loads the streams: not for --help

    result = (_queue if queue else _asked)(file, bootstrap, **asked)
    show_json(msgspec.json.encode(result)) if output == "json" else show(report.text_of(result))
    if not report.fine(result):
        raise click.exceptions.Exit(1)


def _queue(file: Path | None, bootstrap: Cluster | None, **asked: Any) -> QueueResult:
    from slacktide.deploy.cli.replay import report, source  # noqa: PLC0415

    if asked["policy"] is not None or asked["nodes"] or asked["since"] is not None:
        raise click.UsageError("--queue decides all turns by their own records: remove --policy, --node and --since")
    return report.queue_decided(source.Where(file, bootstrap, None, asked["until"]), asked["first"])


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
    from slacktide.deploy.cli.replay import source  # noqa: PLC0415
    from slacktide.deploy.cli.replay.jobs import Plan, decided  # noqa: PLC0415

    other = None if policy is None else policies.parse(load_yaml(policy), str(policy)).policy

    def plan(opened: source.Opened) -> Plan:
        return Plan(policies=opened.policies, since_ms=opened.since_ms, nodes=nodes, kept=first, other=other)

    return cast("Result | Change", decided(source.Where(file, bootstrap, since, until), plan, nodes, jobs))
