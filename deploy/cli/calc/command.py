"""``slacktide calc NAME``: cases in, results out, in order."""

import sys

import click

from slacktide.deploy.cli.calc.calculations import Calculation, calculations, waterfall
from slacktide.deploy.runtime.line_file import Lines
from slacktide.deploy.runtime.text import count, show, show_json, table


def _names(_ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
    if wanted:
        rows = [(name, (one.__doc__ or "").partition("\n")[0].rstrip(".")) for name, one in calculations().items()]
        show(table(("NAME", "WHAT IT DOES"), rows))
        raise click.exceptions.Exit


@click.command(
    epilog="""Example: slacktide calc cpu_suppress_cfs_quota --table < cases.jsonl, each line of which is such as
    {"name": "a", "input": {"be_allowed_cpu_milli": 500, "current_be_cfs_quota_us": -1,
    "node_capacity_cpu_milli": 8000}}"""
)
@click.argument("name", type=click.Choice(list(calculations())), metavar="NAME")
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_names,
    help="List all rules with a description.",
)
@click.option("--explain", is_flag=True, help="Add the terms of each figure, and the step that determined it.")
@click.option("--table", "tables", is_flag=True, help="Print tables instead of JSON.")
def command(name: str, *, explain: bool, tables: bool) -> None:
    """Compute a decision rule for each JSON line of stdin, {"name": ..., "input": {...}}; print results in order.

    An invalid line gives {"name": ..., "error": ...} with the field's path, and exit code 1 at the end. Other lines
    are still computed.
    """
    calculation = Calculation(name, explain=explain)
    failed = lines = 0
    for line in Lines(sys.stdin.buffer, "standard input"):
        if not line.strip():
            continue
        answered = calculation.answer(line)
        failed += answered.calculated is None
        lines += 1
        show(waterfall(answered)) if tables else show_json(answered.line)
    if failed:
        show(f"{failed} of {count(lines, 'case')} could not be computed; their lines contain the error", err=True)
        raise click.exceptions.Exit(1)
