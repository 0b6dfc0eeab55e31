"""``slacktide scheduler``: the scheduler extender for pods with schedulerName ``koord-scheduler``."""
# ruff: noqa: RUF009 - setting() makes a field

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.deploy.runtime import garbage, process
from slacktide.deploy.runtime.settings import (
    LOOPBACK_BROKER,
    PORT,
    Kafka,
    configured,
    kubeconfig,
    process_name,
    setting,
)
from slacktide.schemas.connection import Cluster
from slacktide.streams.decisions.numa.score import STRATEGIES, Strategy

METRICS_PORT = 9468
WEIGHT = click.IntRange(0, 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerCommandSettings(process.ProcessSettings):
    """Settings of one replica."""

    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    host: str = setting("Host address on which the extender serves the kube-scheduler.", default="127.0.0.1")
    port: int = setting("Port that it listens on.", PORT, default=8444)
    kubeconfig: Path | None = kubeconfig()
    no_api_server: bool = setting(
        "Use no API server. Nodes are filtered and scored from Kafka alone, and the caller binds pods.", default=False
    )
    load_weight: int = setting("Weight of the score for free capacity of a node.", WEIGHT, default=1)
    balance_weight: int = setting(
        "Weight of the score for unallocated batch or mid resources, for pods that request them.", WEIGHT, default=1
    )
    numa_weight: int = setting(
        "Weight of the score for NUMA zones, for Guaranteed pods on nodes that publish zones.", WEIGHT, default=1
    )
    numa_strategy: Strategy = setting(
        "Strategy that scores zones. LeastNUMANodes prefers few and near zones. The others compare how full a "
        "zone would be, on nodes whose kubelet has the policy single-numa-node.",
        click.Choice(STRATEGIES),
        default="LeastNUMANodes",
    )
    gangs: bool = setting(
        "Hold back the pods of a gang until all of it have a node. Use it with the webhook's option of the same name.",
        click.BOOL,
        default=False,
    )
    reservations: bool = setting(
        "Let pending pods use the room of Reservations, which the bridge's option of the same name holds.",
        click.BOOL,
        default=False,
    )
    metrics_port: int = process.metrics_port(METRICS_PORT)


@click.command(epilog="Example: slacktide scheduler --bootstrap kafka-1:9092 --metrics-host 0.0.0.0")
@configured(SchedulerCommandSettings)
def command(settings: SchedulerCommandSettings) -> None:
    """Run a scheduler extender: filter and score the nodes of a kube-scheduler by their load.

    Run one beside each replica of a kube-scheduler, with nodeCacheCapable and ignorable in its configuration.
    """
    from slacktide.agents.cluster.scheduler import scheduler  # noqa: PLC0415 - loads Kafka and HTTP: not for --help
    from slacktide.agents.kubernetes.access import access  # noqa: PLC0415
    from slacktide.streams.decisions.load.pod_placement import PlacementArgs  # noqa: PLC0415

    garbage.seldom()
    given = scheduler.SchedulerSettings(
        bootstrap=settings.bootstrap,
        access=None if settings.no_api_server else asyncio.run(access(settings.kubeconfig)),
        replica=process_name(),
        host=settings.host,
        port=settings.port,
        args=PlacementArgs(
            load_weight=settings.load_weight,
            balance_weight=settings.balance_weight,
            numa_weight=settings.numa_weight,
            numa_strategy=settings.numa_strategy,
        ),
        gangs=settings.gangs,
        reservations=settings.reservations,
    )
    process.run("scheduler", settings, lambda stop, health: scheduler.run(given, stop, health))
