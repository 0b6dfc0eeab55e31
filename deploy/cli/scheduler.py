"""``slacktide scheduler``: what a kube-scheduler asks about pods that name koord-scheduler."""
# ruff: noqa: RUF009 - setting() makes a field

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.deploy.cli import garbage, process
from slacktide.deploy.cli.bridge import replica_name
from slacktide.deploy.cli.settings import LOOPBACK_BROKER, PORT, Kafka, configured, file, setting
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.streams.decisions.numa.score import STRATEGIES, Strategy

METRICS_PORT = 9468
WEIGHT = click.IntRange(0, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerCommandSettings(process.ProcessSettings):
    """How one replica runs."""

    bootstrap: Cluster = setting("Kafka, several with commas.", Kafka(), default=LOOPBACK_BROKER)
    host: str = setting("Address on which the kube-scheduler's questions are answered.", default="127.0.0.1")
    port: int = setting("Its port.", PORT, default=8444)
    kubeconfig: Path | None = setting(
        "How the API server is reached. Not given: $KUBECONFIG, else the pod's service account, else ~/.kube/config.",
        file(),
        default=None,
    )
    no_api_server: bool = setting(
        "There is no Kubernetes: nodes are judged by the log alone, and whoever asks binds pods by means of its own.",
        default=False,
    )
    load_weight: int = setting("Weight of what stays free of a node.", WEIGHT, default=1)
    balance_weight: int = setting(
        "Weight of how much batch or mid resource is left there, against the node that has most; of pods that ask for "
        "some.",
        WEIGHT,
        default=1,
    )
    numa_weight: int = setting(
        "Weight of how well a node's NUMA zones suit a Guaranteed pod, where nodes publish zones.", WEIGHT, default=1
    )
    numa_strategy: Strategy = setting(
        "How zones are scored. LeastNUMANodes: the fewer zones a pod needs, and the nearer, the better. The others "
        "compare how full a zone would be, on nodes whose kubelet has the policy single-numa-node.",
        click.Choice(STRATEGIES),
        default="LeastNUMANodes",
    )
    metrics_port: int = setting("Its port; 0: any free one, said at start.", PORT, default=METRICS_PORT)


@click.command(epilog="Example: slacktide scheduler --bootstrap kafka-1:9092 --metrics-host 0.0.0.0")
@configured(SchedulerCommandSettings)
def command(settings: SchedulerCommandSettings) -> None:
    """Answer a kube-scheduler: which nodes may take a pod by their load, and which should.

    It is an extender with nodeCacheCapable, beside each replica of a kube-scheduler. One that is away may be ignored.
    """
    from slacktide.agents.cluster.scheduler import scheduler  # noqa: PLC0415 - loads Kafka and HTTP: not for --help
    from slacktide.agents.kubernetes import access  # noqa: PLC0415
    from slacktide.streams.decisions.pod_placement import PlacementArgs  # noqa: PLC0415

    garbage.seldom()
    given = scheduler.SchedulerSettings(
        bootstrap=settings.bootstrap,
        access=None if settings.no_api_server else asyncio.run(access(settings.kubeconfig)),
        replica=replica_name(),
        host=settings.host,
        port=settings.port,
        args=PlacementArgs(
            load_weight=settings.load_weight,
            balance_weight=settings.balance_weight,
            numa_weight=settings.numa_weight,
            numa_strategy=settings.numa_strategy,
        ),
    )

    async def work(stop: asyncio.Event, health: Health) -> None:
        await scheduler.run(given, stop, health)

    process.run("scheduler", settings, work)
