"""``slacktide assess``: read Prometheus, and report what could have been offered to batch pods."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.agents.files import load_yaml
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.progress import Bar
from slacktide.deploy.runtime.text import Duration, Moment, MomentType, output_option, show_result, since_option
from slacktide.schemas import policy as policies

if TYPE_CHECKING:
    from slacktide.deploy.cli.assess.prometheus import Asked


@click.command(epilog="Example: slacktide assess --prometheus http://127.0.0.1:9090 --html assess.html")
@click.option("--prometheus", "url", help="Address of a Prometheus that scrapes kube-state-metrics and cAdvisor.")
@click.option(
    "--from", "recording", type=settings.file(), help="Read a recording that --record wrote, instead of a server."
)
@since_option
@click.option("--until", type=MomentType(), help="End of the span: a time, or a duration before now. Without it: now.")
@click.option(
    "--step", type=Duration(), default="5m", show_default=True, help="Time between two evaluations of a query."
)
@click.option(
    "--window",
    type=Duration(),
    default="5m",
    show_default=True,
    help="Window over which rates are computed. A longer --step replaces it.",
)
@click.option(
    "--horizon",
    type=Duration(),
    default="24h",
    show_default=True,
    help="How far into the future the oracle sees actual use. Estimates are compared with it.",
)
@click.option(
    "--policy",
    type=settings.file(),
    help="Compute batch resources by the policy in this ConfigMap, instead of the default policy.",
)
@click.option(
    "--node-label", default="node", show_default=True, help="Label that contains the node's name in cAdvisor's series."
)
@click.option(
    "--pool-label",
    default="",
    help="Node label that contains the name of the pool. Without it, the labels of common cloud providers are tried.",
)
@click.option(
    "--matcher",
    default="",
    help="Label matcher for all queries, such as 'cluster=\"prod\"', for a Prometheus that scrapes several clusters.",
)
@click.option("--token-file", type=settings.file(), help="File with the bearer token for Prometheus.")
@click.option(
    "--ca", type=settings.file(), help="File with the CA certificates that verify the server's certificate, in PEM."
)
@click.option("--record", type=settings.file(), help="Also record all answers of the server in this file (gzip).")
@click.option("--html", type=settings.file(), help="Also write the report with charts to this HTML file.")
@output_option("text", "json", short=False)
def command(  # noqa: PLR0913 - one argument per option
    *,
    url: str | None,
    recording: Path | None,
    policy: Path | None,
    horizon: int,
    pool_label: str,
    token_file: Path | None,
    ca: Path | None,
    record: Path | None,
    html: Path | None,
    output: str,
    **span: Any,
) -> None:
    """Report batch resources that a cluster could have offered, and where they would have caused evictions.

    Read-only: it asks an existing Prometheus, and needs neither Kafka nor root. A login by password is read from
    SLACKTIDE_PROMETHEUS_USER and SLACKTIDE_PROMETHEUS_PASSWORD.
    """
    if (url is None) == (recording is None):
        raise click.UsageError("nothing to read: give --prometheus URL for a server, or --from FILE for a recording")
    from slacktide.agents.prometheus import PASSWORD, USER, Prometheus  # noqa: PLC0415 - as below
    from slacktide.deploy.cli.assess import prometheus, report  # noqa: PLC0415 - numpy: not for --help
    from slacktide.deploy.cli.assess.gathering import Gathering  # noqa: PLC0415
    from slacktide.streams.analysis.assess.assessment import assess  # noqa: PLC0415

    in_force = policies.DEFAULT if policy is None else policies.parse(load_yaml(policy), str(policy)).policy
    calculations = {in_force.colocation.cpu_calculate_policy, in_force.colocation.mem_calculate_policy}
    needs_larger = "maxUsageRequest" in calculations
    if recording is not None:
        asked, coming = prometheus.read(recording)
    else:
        assert url is not None
        asked = _asked(**span, pool_label=pool_label, max_used_request=needs_larger)
        login = os.environ.get(USER), os.environ.get(PASSWORD)
        coming = prometheus.answers(Prometheus(url, prometheus.LIMITS, token_file, login, ca), asked)
    if needs_larger and not asked.max_used_request:
        raise click.UsageError(
            f"{recording} lacks the series that maxUsageRequest needs: record it again with this --policy"
        )
    if pool_label:
        asked = msgspec.structs.replace(asked, pool_label=pool_label)
    gathering, bar = Gathering(asked), Bar("reading")
    for answer in coming if record is None else prometheus.recorded(asked, coming, record):
        bar.show(answer.part, answer.name)
        gathering.take(answer)
    bar.done()
    found = assess(gathering.usage(), in_force, horizon_s=horizon // 1000)
    if html is not None:
        html.write_text(report.page(found))
    show_result(found, output, lambda: report.text(found), indent=0)


def _asked(*, since: Moment, until: Moment | None, step: int, window: int, **selectors: Any) -> Asked:
    """Return the first step, the number of steps, and the selectors of the series."""
    from slacktide.deploy.cli.assess.prometheus import STEPS_MAX, Asked  # noqa: PLC0415 - the client: not for --help

    for name, span_ms in (("--step", step), ("--window", window)):
        if span_ms < 1000 or span_ms % 1000:
            raise click.UsageError(f"{name}: whole seconds are accepted")
    step_s = step // 1000
    now_ms = SystemClock().wall_ms()
    until_ms = now_ms if until is None else until.at(now_ms)
    start_s, end_s = (at // 1000 // step_s * step_s for at in (since.at(until_ms), until_ms))
    steps = (end_s - start_s) // step_s + 1
    if not 2 <= steps <= STEPS_MAX:
        raise click.UsageError(f"--since, --until and --step give {steps} steps; from 2 to {STEPS_MAX} are accepted")
    return Asked(start_s=start_s, step_s=step_s, steps=steps, window_s=window // 1000, **selectors)
