"""``slacktide stream``: one stream worker, which is also a candidate for the eviction governor."""
# ruff: noqa: RUF009 - setting() makes a field

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.agents.clock import SystemClock
from slacktide.agents.files import Watched
from slacktide.deploy.cli import proof_keys
from slacktide.deploy.runtime import garbage, process
from slacktide.deploy.runtime.settings import (
    LOOPBACK_BROKER,
    Kafka,
    configured,
    fetch_wait_ms,
    file,
    folder,
    process_name,
    setting,
)
from slacktide.schemas import policy as policies
from slacktide.schemas.access import STREAM_GROUP
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.schemas.policy import Parsed
from slacktide.streams.tasks import ended

log = logging.getLogger(__name__)

METRICS_PORT = 9465
OPEN_NODES_MAX = 1_000
LOOK_S = 1.0


class ShadowFile:
    """A policy file, and the shadow that decides by its last valid content.

    Raises ConfigError: the file is missing or invalid.
    """

    def __init__(self, path: Path, worker: str) -> None:
        from slacktide.streams.worker.one_by_one import Shadow  # noqa: PLC0415 - loads numpy: not for --help

        self._file: Watched[Parsed] = Watched(path, policies.parse)
        self.shadow = Shadow(worker, self._file.value.policy)

    async def follow(self) -> None:
        """Check each second for changes; an invalid change is logged, and the last valid policy stays."""
        self._report()
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._file.poll():
                continue
            if self._file.refused:
                log.warning("%s", self._file.refused)
            if self._file.value.policy.version != self.shadow.policy.version:
                self.shadow.policy = self._file.value.policy
                self._report()

    def _report(self) -> None:
        log.info(
            "shadow policy in force", extra={"policy": str(self._file.path), "version": self.shadow.policy.version}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings(process.ProcessSettings):
    """Settings of one worker."""

    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    group: str = setting("Consumer group. Workers of one group divide the nodes among them.", default=STREAM_GROUP)
    worker_name: str = setting(
        "Name of this worker in the records that it publishes.", default=process_name, shown="host name and process id"
    )
    session_timeout: float = setting(
        "Seconds without a heartbeat after which a worker loses its partitions (session.timeout.ms). Kafka "
        "accepts 6 or more. On the embedded broker, joining the group takes half of this time.",
        click.FloatRange(1, 300),
        default=6.0,
    )
    fetch_wait_ms: int = fetch_wait_ms(1_000)
    open_nodes_max: int = setting(
        "Most nodes without an inventory record that this worker accepts, if the policy's node_source is `open`. "
        "Samples of further nodes are answered `skipped`.",
        click.IntRange(min=0),
        default=OPEN_NODES_MAX,
    )
    republish: float = setting(
        "Seconds after which unchanged figures are published again. Heartbeats cover them in between. Values "
        "above 5 need consumers that read heartbeats (docs/silence.md).",
        click.FloatRange(5, 30),
        default=5.0,
    )
    shadow: Path | None = setting(
        "File with a shadow policy. The worker decides each sample by it, too, and publishes those answers to "
        "topics that no agent reads. The shadow starts from the limits that the real policy set. Reread when "
        "it changes. See `slacktide policy compare`.",
        file(),
        default=None,
    )
    proof_keys: Path | None = setting(proof_keys.HELP, folder(exists=False), default=None)
    metrics_port: int = process.metrics_port(METRICS_PORT)


@click.command(epilog="Example: slacktide stream --bootstrap kafka-1:9092,kafka-2:9092 --worker-name blue")
@configured(StreamSettings)
def command(settings: StreamSettings) -> None:
    """Run one stream worker. It answers the samples of its partitions. One worker of the group also governs evictions.

    Start more workers to divide the nodes. On SIGTERM it finishes its batch, commits, and leaves the group.
    """
    from slacktide.schemas.proof import Verifier  # noqa: PLC0415
    from slacktide.streams import topology  # noqa: PLC0415
    from slacktide.streams.engine import metrics  # noqa: PLC0415
    from slacktide.streams.engine.folding import FoldSettings  # noqa: PLC0415
    from slacktide.streams.engine.governing import GovernorSettings  # noqa: PLC0415
    from slacktide.streams.engine.session import WorkerSettings  # noqa: PLC0415 - loads Kafka: not for --help
    from slacktide.streams.governor.governor import Governor  # noqa: PLC0415
    from slacktide.streams.proofs import by_keys  # noqa: PLC0415
    from slacktide.streams.worker import Worker  # noqa: PLC0415

    garbage.seldom()
    garbage.returned()
    shadowing = None if settings.shadow is None else ShadowFile(settings.shadow, settings.worker_name)
    verifier = Verifier()
    keys = proof_keys.followed(settings.proof_keys, verifier.keys)
    judge = metrics.counted(by_keys(verifier))
    republish_ms = round(settings.republish * 1000)
    worker = Worker(settings.worker_name, judge, open_nodes_max=settings.open_nodes_max, republish_ms=republish_ms)
    worker.shadow = shadowing.shadow if shadowing else None

    async def work(stop: asyncio.Event, health: Health) -> None:
        now_ms, session_timeout_ms = SystemClock().wall_ms, round(settings.session_timeout * 1000)
        connection = WorkerSettings(
            bootstrap=settings.bootstrap,
            group=settings.group,
            session_timeout_ms=session_timeout_ms,
            fetch_wait_ms=settings.fetch_wait_ms,
        )
        governor_settings = GovernorSettings(
            bootstrap=settings.bootstrap, session_timeout_ms=session_timeout_ms, republish_ms=republish_ms
        )
        governor = Governor(settings.worker_name, judge)
        governing = asyncio.create_task(topology.govern(governor, governor_settings, stop, now_ms))
        fold = FoldSettings(bootstrap=settings.bootstrap, session_timeout_ms=session_timeout_ms)
        folding = asyncio.create_task(topology.fold(fold, stop, now_ms, judge))
        followed = [each.follow() for each in (shadowing, keys) if each is not None]
        beside = [
            governing,
            folding,
            asyncio.create_task(garbage.trimmed()),
            *(asyncio.create_task(follow) for follow in followed),
        ]
        try:
            await topology.decide_samples(worker, connection, stop, health, now_ms)
            await asyncio.gather(governing, folding)
        finally:
            await ended(*beside)

    process.run("stream", settings, work)
