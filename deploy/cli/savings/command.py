"""``slacktide savings``: best-effort use beyond native requests, lost work, and the effect on others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from click.core import ParameterSource

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli.moment import Moment, MomentType, since_option
from slacktide.deploy.cli.suggestions import NotFoundError
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import Name, instant, show, show_json
from slacktide.schemas.connection import Cluster

if TYPE_CHECKING:
    from slacktide.streams.savings.account import Report

OWN = {"--since": "since", "--until": "until", "--node": "nodes"}
"""Options that an earlier result fixes, with their argument names."""


@click.command(epilog="Example: slacktide savings --since 1d --bootstrap kafka-1:9092")
@click.argument("files", nargs=-1, type=settings.file())
@settings.bootstrap_option
@since_option
@click.option(
    "--until",
    type=MomentType(),
    help="End of the span: a time, or a duration before now. Without it: now, or the end of the last file.",
)
@click.option("--node", "nodes", type=Name(), multiple=True, help="Only this node. Repeat for several.")
@click.option(
    "--from-offsets",
    "answer",
    type=settings.file(),
    help="Read the records of an earlier JSON report again, by the offsets in it.",
)
@click.option(
    "--prometheus-textfile",
    "textfile",
    type=settings.file(),
    help="Also write metrics to this file, for node_exporter's textfile collector.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json", "csv"]), default="text", show_default=True)
def command(
    files: tuple[Path, ...],
    *,
    bootstrap: Cluster,
    since: Moment,
    until: Moment | None,
    nodes: tuple[str, ...],
    answer: Path | None,
    textfile: Path | None,
    output: str,
) -> None:
    """Report core-hours and GiB-hours that best-effort pods used beyond what native requests would have admitted.

    Work lost to evictions and restarts is subtracted. The report also contains throttling, pressure and reaction
    times. FILES come from `slacktide topics export`; without FILES, the command reads Kafka.
    """
    from slacktide.deploy.cli.savings import report  # noqa: PLC0415 - loads the streams: not for --help

    if answer is not None:
        made = _again(files, bootstrap, answer)
    else:
        made = _made(files, bootstrap, since=since, until=until, nodes=nodes)
    known = {node.node for node in made.nodes}
    if unknown := next((node for node in nodes if node not in known), None):
        raise NotFoundError(f"node {unknown} has no sample or outcome in the span; list all nodes: slacktide nodes")
    if textfile is not None:
        report.write_metrics(made, textfile)
    if output == "json":
        show_json(msgspec.json.encode(made))
    elif output == "csv":
        show(report.csv_text(made), nl=False)
    else:
        show(report.text(made))


def _made(
    files: tuple[Path, ...], bootstrap: Cluster, *, since: Moment, until: Moment | None, nodes: tuple[str, ...]
) -> Report:
    from slacktide.deploy.cli.savings import source  # noqa: PLC0415
    from slacktide.streams.savings.account import Span  # noqa: PLC0415

    found = source.headers(files)
    if found:
        since_ms, until_ms = source.ends_of(found, since, until)
    else:
        now_ms = SystemClock().wall_ms()
        until_ms = now_ms if until is None else until.at(now_ms)
        since_ms = since.at(until_ms)
    if since_ms >= until_ms:
        raise click.UsageError(
            f"--since ({instant(since_ms)}) must be earlier than the end of the span ({instant(until_ms)})"
        )
    return source.made(found, bootstrap, Span(since_ms, until_ms, nodes))


def _again(files: tuple[Path, ...], bootstrap: Cluster, answer: Path) -> Report:
    from slacktide.deploy.cli.savings import source  # noqa: PLC0415

    given = click.get_current_context().get_parameter_source
    if own := [option for option, name in OWN.items() if given(name) is not ParameterSource.DEFAULT]:
        raise click.UsageError(
            f"{', '.join(own)}: not accepted with --from-offsets, whose report already contains span and nodes"
        )
    return source.again(source.headers(files), bootstrap, answer)
