"""``slacktide assess``: read Prometheus, and report what could have been offered to batch pods."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from slacktide.agents.clock import SystemClock
from slacktide.agents.files import load_yaml
from slacktide.deploy.cli.moment import Moment, MomentType, since_option
from slacktide.deploy.runtime import settings
from slacktide.deploy.runtime.progress import Bar
from slacktide.deploy.runtime.text import Duration, show, show_json
from slacktide.schemas import policy as policies

if TYPE_CHECKING:
    from slacktide.deploy.cli.assess.recording import Answer

USER, PASSWORD = "SLACKTIDE_PROMETHEUS_USER", "SLACKTIDE_PROMETHEUS_PASSWORD"


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
@click.option("--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(  # noqa: PLR0913 - one argument per option
    *,
    url: str | None,
    recording: Path | None,
    since: Moment,
    until: Moment | None,
    step: int,
    window: int,
    horizon: int,
    policy: Path | None,
    node_label: str,
    pool_label: str,
    matcher: str,
    token_file: Path | None,
    ca: Path | None,
    record: Path | None,
    html: Path | None,
    output: str,
) -> None:
    """Report batch resources that a cluster could have offered, and where they would have caused evictions.

    Read-only: it asks an existing Prometheus, and needs neither Kafka nor root. A login by password is read from
    SLACKTIDE_PROMETHEUS_USER and SLACKTIDE_PROMETHEUS_PASSWORD.
    """
    if (url is None) == (recording is None):
        raise click.UsageError("nothing to read: give --prometheus URL for a server, or --from FILE for a recording")
    from slacktide.deploy.cli.assess import page, report  # noqa: PLC0415 - numpy: not for --help
    from slacktide.deploy.cli.assess import recording as recordings  # noqa: PLC0415
    from slacktide.deploy.cli.assess.gathering import Gathering  # noqa: PLC0415
    from slacktide.deploy.cli.assess.prometheus import Prometheus, Server  # noqa: PLC0415
    from slacktide.streams.assess.assessment import assess  # noqa: PLC0415

    in_force = policies.DEFAULT if policy is None else policies.parse(load_yaml(policy), str(policy)).policy
    if recording is not None:
        asked, coming = recordings.read(recording)
    else:
        assert url is not None
        start_s, steps = _steps(since, until, step, window)
        asked = recordings.Asked(
            start_s=start_s,
            step_s=step // 1000,
            steps=steps,
            node_label=node_label,
            pool_label=pool_label,
            matcher=matcher,
            max_used_request=_needs_larger(in_force),
            window_s=window // 1000,
        )
        login = {"user": os.environ.get(USER), "password": os.environ.get(PASSWORD)}
        server = Prometheus(Server(url=url, token_file=token_file, ca=ca, **login))
        coming = recordings.answers(server, asked)
    if _needs_larger(in_force) and not asked.max_used_request:
        raise click.UsageError(
            f"{recording} lacks the series that maxUsageRequest needs: record it again with this --policy"
        )
    if pool_label:
        asked = msgspec.structs.replace(asked, pool_label=pool_label)
    gathering = Gathering(asked)
    for answer in _shown(coming if record is None else recordings.recorded(asked, coming, record)):
        gathering.take(answer)
    found = assess(gathering.usage(), in_force, horizon_s=horizon // 1000)
    if html is not None:
        html.write_text(page.page(found))
    show_json(msgspec.json.encode(found)) if output == "json" else show(report.text(found))


def _needs_larger(policy: policies.Policy) -> bool:
    colocation = policy.colocation
    return "maxUsageRequest" in {colocation.cpu_calculate_policy, colocation.mem_calculate_policy}


def _steps(since: Moment, until: Moment | None, step: int, window: int) -> tuple[int, int]:
    """Return the first step in seconds, and the number of steps."""
    from slacktide.deploy.cli.assess.recording import STEPS_MAX  # noqa: PLC0415 - the client: not for --help

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
    return start_s, steps


def _shown(coming: Iterator[Answer]) -> Iterator[Answer]:
    bar = Bar("reading")
    for answer in coming:
        bar.show(answer.part, answer.name)
        yield answer
    bar.done()
