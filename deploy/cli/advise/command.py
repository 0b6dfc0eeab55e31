"""``slacktide advise``: gain and risk of other thresholds on recorded days."""

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
from slacktide.schemas.errors import ConfigError, Finding, SlacktideError

if TYPE_CHECKING:
    from slacktide.deploy.cli.replay.source import Opened
    from slacktide.streams.advise.advice import Advice

LINE_PCT = 90
SUPPRESS, EVICT = "cpuSuppressThresholdPercent", "memoryEvictThresholdPercent"


class NothingRecordedError(SlacktideError):
    """The span has no sample that can be decided."""


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
    default=LINE_PCT,
    show_default=True,
    help="A node whose CPU use is above this percentage puts its latency-sensitive pods at risk.",
)
@click.option("--svg", type=settings.file(), help="Also write the chart to this SVG file.")
@jobs_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(  # noqa: PLR0913 - one argument per option
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
    from slacktide.deploy.cli.advise import report  # noqa: PLC0415 - loads the streams: not for --help
    from slacktide.deploy.cli.replay.source import Where  # noqa: PLC0415

    base = None if policy is None else policies.parse(load_yaml(policy), str(policy)).policy
    found = _advice(Where(file, bootstrap, since, until), base, (suppress, mem_evict), nodes, line_pct, jobs)
    if svg is not None:
        svg.write_text(report.svg(found))
    show_json(msgspec.json.encode(found)) if output == "json" else show(report.text(found))


def _grid_of(file: Path) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Read both lists of thresholds from a file.

    Raises:
        ConfigError: the file does not map the two names to lists of percents.
    """
    read = load_yaml(file)
    accepted = f"{SUPPRESS} and {EVICT}, each with a list of percents"
    if not isinstance(read, dict) or not read or not set(read) <= {SUPPRESS, EVICT}:
        raise ConfigError([Finding(file=str(file), field="the file", value=str(read)[:80], accepted=accepted)])
    for name, values in read.items():
        if (
            not isinstance(values, list)
            or not values
            or not all(type(one) is int and 1 <= one <= 100 for one in values)
        ):
            accepted = "a list of whole percents from 1 to 100"
            raise ConfigError([Finding(file=str(file), field=name, value=str(values)[:80], accepted=accepted)])
    suppress, evict = (tuple(read[name]) if name in read else None for name in (SUPPRESS, EVICT))
    return suppress, evict


def _advice(
    where: Any,
    base: policies.Policy | None,
    values: tuple[tuple[int, ...] | None, tuple[int, ...] | None],
    nodes: tuple[str, ...],
    line_pct: float,
    jobs: int,
) -> Advice:
    from slacktide.deploy.cli.replay.jobs import Plan, decided  # noqa: PLC0415
    from slacktide.streams.advise.advice import POLICIES_MAX, SUPPRESS_PCT, Tag, advise, grid  # noqa: PLC0415  # noqa: PLC0415
    from slacktide.streams.advise.trials import Tried  # noqa: PLC0415
    from slacktide.streams.replay.policies import Policies  # noqa: PLC0415

    tags: list[Tag] = []

    def plan(opened: Opened) -> Plan:
        tried = grid(base or Policies(opened.policies).newest, values[0] or SUPPRESS_PCT, values[1] or ())
        if len(tried) > POLICIES_MAX:
            raise click.UsageError(f"the grid has {len(tried)} policies; at most {POLICIES_MAX} are accepted")
        tags.extend(tag for tag, _ in tried)
        grid_of = tuple(policy for _, policy in tried)
        return Plan(policies=opened.policies, since_ms=opened.since_ms, nodes=nodes, grid=grid_of, line_pct=line_pct)

    found = cast("Tried", decided(where, plan, nodes, jobs))
    if not found.trials[0]:
        left_out = f"; {found.undecided} were left out because figures, pods or facts were unknown" * bool(
            found.samples
        )
        raise NothingRecordedError(
            f"{where}: none of the {found.samples} samples in the span could be decided{left_out}. Check "
            "--since and --until, and that the export contains the topics policy and node.sample"
        )
    return advise(found, tags, line_pct)
