"""``slacktide queue run``: the queue's decider."""
# ruff: noqa: RUF009 - setting() makes a field

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.agents.clock import SystemClock
from slacktide.deploy.cli import proof_keys
from slacktide.deploy.runtime import garbage, process
from slacktide.deploy.runtime.settings import LOOPBACK_BROKER, Kafka, configured, folder, process_name, setting
from slacktide.deploy.runtime.text import Duration
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.schemas.proof import ClusterKey
from slacktide.schemas.queue import PodsReadySettings

METRICS_PORT = 9470


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRunSettings(process.ProcessSettings):
    """Settings of one candidate."""

    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    process_name: str = setting(
        "Name of this process in its records.", default=process_name, shown="host name and process id"
    )
    session_timeout: float = setting(
        "Seconds without a heartbeat after which another process takes over.", click.FloatRange(1, 300), default=6.0
    )
    fair_sharing: bool = setting(
        "Admit and preempt by fair sharing, like Kueue with fairSharing enabled.", click.BOOL, default=False
    )
    pods_ready_timeout: int | None = setting(
        "Evict a workload whose pods are not ready within this time.", Duration(), default=None, shown="no limit"
    )
    pods_ready_recovery_timeout: int = setting(
        "Evict a workload whose pods were ready, but are not ready again within this time. 0s: no limit.",
        Duration(),
        default="0s",
    )
    requeue_backoff_base: int = setting(
        "Time until a workload that was evicted this way is tried again. It doubles with each eviction.",
        Duration(),
        default="60s",
    )
    requeue_backoff_max: int = setting(
        "Maximum of the time until such a workload is tried again.", Duration(), default="1h"
    )
    requeue_limit: int | None = setting(
        "Number of such evictions after which a workload is deactivated.",
        click.IntRange(min=0),
        default=None,
        shown="no limit",
    )
    block_admission: bool = setting(
        "Admit no workload while an admitted workload waits for its pods.", click.BOOL, default=False
    )
    proof_keys: Path | None = setting(proof_keys.HELP, folder(exists=False), default=None)
    metrics_port: int = process.metrics_port(METRICS_PORT)


@click.command("run", epilog="Example: slacktide queue run --bootstrap kafka-1:9092,kafka-2:9092")
@configured(QueueRunSettings)
def command(settings: QueueRunSettings) -> None:
    """Decide which workloads are admitted, by the specs, workloads and outcomes in Kafka.

    Run two: one decides, the other stands by. It writes decisions and states to Kafka, and nothing to a cluster. On
    SIGTERM it finishes its turn and leaves the group.
    """
    from slacktide.agents.credit_account import QueueCredit  # noqa: PLC0415 - as below
    from slacktide.streams.engine import queueing  # noqa: PLC0415 - loads Kafka: not for --help

    garbage.seldom()
    clock = SystemClock()
    ring: list[ClusterKey] = []

    def use(keys: list[ClusterKey]) -> None:
        """Use the previous key first: after a rotation the governor may not have the newest key yet."""
        ring[:] = keys[::-1]

    keys = proof_keys.followed(settings.proof_keys, use)
    pods_ready = None
    if settings.pods_ready_timeout is not None:
        pods_ready = PodsReadySettings(
            timeout_s=settings.pods_ready_timeout // 1_000,
            recovery_timeout_s=settings.pods_ready_recovery_timeout // 1_000,
            backoff_base_s=settings.requeue_backoff_base // 1_000,
            backoff_max_s=settings.requeue_backoff_max // 1_000,
            backoff_limit=settings.requeue_limit,
            block_admission=settings.block_admission,
        )
    given = queueing.QueueSettings(
        bootstrap=settings.bootstrap,
        process=settings.process_name,
        session_timeout_ms=round(settings.session_timeout * 1_000),
        fair_sharing=settings.fair_sharing,
        pods_ready=pods_ready,
        credit=lambda tail, epoch, sender: QueueCredit(tail, epoch, sender, clock, ring),
    )

    async def work(stop: asyncio.Event, health: Health) -> None:
        following = None if keys is None else asyncio.create_task(keys.follow())
        try:
            await queueing.run(given, stop, health, clock.wall_ms)
        finally:
            if following is not None:
                following.cancel()

    process.run("queue", settings, work)
