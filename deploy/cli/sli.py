"""``slacktide sli``: publishes the latency of services, as a Prometheus server knows it."""
# ruff: noqa: RUF009 - setting() makes a field

import os
from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.deploy.runtime import process
from slacktide.deploy.runtime.settings import LOOPBACK_BROKER, Kafka, Lines, WorkloadName, configured, file, setting
from slacktide.deploy.runtime.text import Duration
from slacktide.schemas.connection import Cluster

METRICS_PORT = 9471
SPAN_MS = (10_000, 600_000)
"""The learner counts no shorter and no longer spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliCommandSettings(process.ProcessSettings):
    """Settings of the process."""

    prometheus: str | None = setting("Address of Prometheus, or of a server with its HTTP API.", default=None)
    query: tuple[str, ...] = setting(
        "PromQL query that returns the 99th percentile of the latency in seconds, one series for each service, or for "
        "each service and node. It can be given several times. In the environment variable, each line is a query.",
        Lines(),
        default=(),
    )
    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    service: str | None = setting(
        "Service of all series, as NAMESPACE/OWNER. Without it, labels name the service.", WorkloadName(), default=None
    )
    namespace_label: str = setting("Label with the namespace of the service.", default="namespace")
    owner_label: str = setting(
        "Labels with the name of its Deployment, StatefulSet or other controller, separated by commas. The first one "
        "that a series has counts.",
        default="deployment,statefulset,owner",
    )
    node_label: str = setting(
        "Label with the node whose pods served the requests. A series without it is of all nodes together.",
        default="node",
    )
    target: float | None = setting(
        "Milliseconds that the 99th percentile shall not exceed. Explanations show it.",
        click.FloatRange(0.001, 3_600_000),
        default=None,
    )
    every: int = setting("Time between two rounds of queries, from 10s to 10m.", Duration(), default="60s")
    window: int = setting(
        "How long the queries count requests, such as the 1m in rate(...[1m]). From 10s to 10m.",
        Duration(),
        default="60s",
    )
    token_file: Path | None = setting("File with the bearer token for Prometheus.", file(), default=None)
    ca: Path | None = setting(
        "File with the CA certificates that verify the server's certificate, in PEM.", file(), default=None
    )
    metrics_port: int = process.metrics_port(METRICS_PORT)


@click.command(
    epilog="""\b
Example: slacktide sli --prometheus http://prometheus:9090 --target 50 --bootstrap kafka-1:9092
  --query 'histogram_quantile(0.99, sum by (le, namespace, deployment) (rate(request_seconds_bucket[1m])))'"""
)
@configured(SliCommandSettings)
def command(settings: SliCommandSettings) -> None:
    """Publish the latency of services, as Prometheus knows it, so that caps are learned from it.

    Run one. A login by password is read from SLACKTIDE_PROMETHEUS_USER and SLACKTIDE_PROMETHEUS_PASSWORD.
    docs/learned-caps.md has queries for common exporters.
    """
    if not settings.prometheus or not settings.query:
        raise click.UsageError("nothing to publish: give --prometheus URL, and --query PROMQL at least once")
    for flag, span_ms in (("--every", settings.every), ("--window", settings.window)):
        if not SPAN_MS[0] <= span_ms <= SPAN_MS[1]:
            raise click.UsageError(f"{flag}: from 10s to 10m is accepted")
    from slacktide.agents.prometheus import PASSWORD, USER, Limits, Prometheus  # noqa: PLC0415 - as below
    from slacktide.agents.sli.exporter import Exporter, SliSettings  # noqa: PLC0415 - loads Kafka: not for --help
    from slacktide.agents.sli.series import Naming  # noqa: PLC0415

    limits = Limits(timeout_s=8.0, bytes_max=16 * 1024 * 1024, smaller="sum by fewer labels, or use a recording rule")
    login = os.environ.get(USER), os.environ.get(PASSWORD)
    server = Prometheus(settings.prometheus, limits, settings.token_file, login, settings.ca)
    given = SliSettings(
        bootstrap=settings.bootstrap,
        queries=tuple(dict.fromkeys(settings.query)),
        naming=Naming(
            namespace=settings.namespace_label,
            owners=tuple(name.strip() for name in settings.owner_label.split(",") if name.strip()),
            node=settings.node_label,
            service=settings.service or "",
        ),
        every_ms=settings.every,
        span_ms=settings.window,
        target_us=None if settings.target is None else round(settings.target * 1_000),
    )
    process.run("sli", settings, lambda stop, health: Exporter(given, server.instant, health).run(stop))
