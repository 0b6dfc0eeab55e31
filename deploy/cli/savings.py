"""``slacktide savings``: best-effort use beyond native requests, lost work, and the effect on others."""

from pathlib import Path

import click
from click.core import ParameterSource

from slacktide.deploy.cli.suggestions import NotFoundError
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.text import Moment, MomentType, Name, output_option, show, show_result, since_option
from slacktide.schemas.connection import Cluster

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
@output_option("text", "json", "csv")
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
    from slacktide.deploy.cli import savings_report as report  # noqa: PLC0415 - loads the streams: not for --help

    if answer is None:
        made = report.made(files, bootstrap, since, until, nodes)
    else:
        given = click.get_current_context().get_parameter_source
        if own := [option for option, name in OWN.items() if given(name) is not ParameterSource.DEFAULT]:
            raise click.UsageError(
                f"{', '.join(own)}: not accepted with --from-offsets, whose report already contains span and nodes"
            )
        made = report.again(files, bootstrap, answer)
    known = {node.node for node in made.nodes}
    if unknown := next((node for node in nodes if node not in known), None):
        raise NotFoundError(f"node {unknown} has no sample or outcome in the span; list all nodes: slacktide nodes")
    if textfile is not None:
        report.write_metrics(made, textfile)
    if output == "csv":
        show(report.csv_text(made), nl=False)
    else:
        show_result(made, output, lambda: report.text(made), indent=0)
