"""``slacktide up``: broker, topics, publisher, stream worker, agent and console on this machine, in the foreground.

``slacktide publish`` is the publisher alone.

Worker and agent are separate processes, as in a cluster, and are restarted independently. The embedded broker restarts
empty; the operator's files are then republished.
"""
# ruff: noqa: RUF009 - setting() makes a field

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slacktide.agents.clock import SystemClock
from slacktide.agents.listening import reachable
from slacktide.deploy.cli import agent_options, machine
from slacktide.deploy.cli.agent import METRICS_PORT, NodeSettings
from slacktide.deploy.cli.machine import OperatorFiles
from slacktide.deploy.runtime import console_process, process
from slacktide.deploy.runtime.broker import (
    FETCH_WAIT_MS,
    NOTICE,
    READERS,
    SAMPLES_WAIT_MS,
    SESSION_S,
    BrokerError,
    EmbeddedBroker,
    free_port,
)
from slacktide.deploy.runtime.settings import (
    LOOPBACK_BROKER,
    Kafka,
    configured,
    file,
    named,
    setting,
    stored,
)
from slacktide.deploy.runtime.supervisor import BACKOFF_S, BACKOFF_S_MAX, Part, how
from slacktide.deploy.runtime.text import printable
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import CgroupError, SlacktideError
from slacktide.schemas.health import Health
from slacktide.schemas.policy import NodeSource
from slacktide.streams.tasks import ended

if TYPE_CHECKING:  # it imports Kafka, which would delay the other parts
    from slacktide.deploy.cli.log_side import LogSide

log = logging.getLogger(__name__)

SHIPPED_POLICY = Path(__file__).with_name("policy.yaml")
KAFKA_PORT, PUBLISH_PORT = 9092, 9469
PART_STOP_S = 3.5


SAMPLE_EXCLUDES = ("inventory", "kubepods", "kubelet", "host_workloads")


class NoPodsHereError(CgroupError):
    """No cgroup with pods was found or given."""


def _policy() -> Any:
    """Return the setting of the policy's file."""
    return setting(
        "File with the ConfigMap slo-controller-config. Reread when it changes. An invalid policy is rejected, "
        "and the last valid one stays in force.",
        file(),
        default=SHIPPED_POLICY,
        shown="the shipped policy: idle best-effort pods, paused while they stall other pods, memory eviction from 70%",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings(NodeSettings):
    """Settings of the one-machine stack."""

    sample: bool = setting(
        "Run a sample service and batch work, for a machine without pods. As root they run in control groups that "
        "are removed afterwards, otherwise on a virtual node. Its policy limits batch work above 95% of CPU.",
        default=False,
    )
    bootstrap: Cluster | None = setting(
        "Addresses of Kafka brokers, separated by commas. Without it, the embedded broker starts, for development "
        "only.",
        Kafka(),
        default=None,
    )
    policy: Path = _policy()
    metrics_port: int = setting(
        "Port of the agent's endpoints. The stream worker uses the next port. 0: free ports, which are logged at "
        "start.",
        click.IntRange(0, 65_534),
        default=METRICS_PORT,
    )
    no_console: bool = setting("Do not start the console.", default=False)

    def __post_init__(self) -> None:
        """Raise click.UsageError if options exclude or require each other."""
        NodeSettings.__post_init__(self)
        other = next((name for name in SAMPLE_EXCLUDES if getattr(self, name) is not None), None)
        if self.sample and other is not None:
            raise click.UsageError(
                f"--sample and --{other.replace('_', '-')} exclude each other: the sample has its own node and pods"
            )


@click.command(epilog="Example: slacktide up --sample")
@configured(UpSettings)
def command(settings: UpSettings) -> None:
    """Run broker, topics, stream worker, agent and console on this machine until stopped.

    The console needs the extra slacktide[console]. Its address is logged once the other parts are ready.
    Environment variables set the options of a part that are not listed here, such as SLACKTIDE_GUARD_DEADLINE.
    On Ctrl-C or SIGTERM, all parts stop within 10 s.
    """
    process.configure("up", settings.log_level, settings.log_format)
    if not settings.sample and sys.stdin.isatty():
        try:
            _find_groups(settings)
        except NoPodsHereError as exc:
            asked = f"{printable(str(exc))}\nRun a sample service and batch work now?"
            settings = replace(settings, sample=click.confirm(asked, default=True))
        except SlacktideError:
            pass  # the stack reports it
    process.until_stopped(lambda stop: Stack(settings).run(stop))


class Stack:
    """All parts on one machine."""

    def __init__(self, settings: UpSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._started_ns, self._started_ms = self._clock.mono_ns(), self._clock.wall_ms()
        self._health = Health()
        self._broker: EmbeddedBroker | None = None
        self._parts: list[Part] = []
        self._console: Part | None = None
        self._ready = asyncio.Event()
        """Set when all parts are ready."""
        self._keeping: list[asyncio.Task[None]] = []
        self._beside: list[asyncio.Task[None]] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set. Raises SlacktideError: a file is invalid, no cgroups, or a part does not start."""
        if not self._settings.sample:
            _find_groups(self._settings)
            await self._run(self._settings, stop, [])
            return
        from slacktide.deploy.demo.workload import sample  # noqa: PLC0415 - not for --help

        async with sample() as running:
            place = asdict(running.backend.place(running.node))
            given = self._settings.policy
            settings = replace(
                self._settings, sample=False, node_name=running.node, inventory=running.inventory,
                policy=running.policy if given == SHIPPED_POLICY else given, **place,
            )  # fmt: skip
            await self._run(settings, stop, [running.keep()])

    async def _run(self, settings: UpSettings, stop: asyncio.Event, also: Sequence[Coroutine[Any, Any, None]]) -> None:
        inventory = settings.inventory
        if inventory is None:
            inventory = machine.inventory(settings.node_name, settings.state_folder, settings.proc_mount)
            log.warning("%s", machine.description(settings.node_name, settings.lister))
        itself = partial(machine.node_item, settings.node_name, settings.proc_mount)
        files = OperatorFiles(settings.policy, inventory, settings.node_name, settings.state_folder, machine=itself)
        bootstrap = await self._bootstrap()
        self._parts = parts_of(settings, bootstrap, inventory)
        for part in self._parts:
            log.info("%s: %s", part.name, part.url)

        async def until_stopped() -> None:
            await stop.wait()

        self._keeping = [asyncio.create_task(part.keep()) for part in self._parts]
        self._keeping += [asyncio.create_task(self._keep_console(settings, bootstrap))]
        try:
            # After the parts were started, which take longer than this import.
            from slacktide.deploy.cli.log_side import LogSide  # noqa: PLC0415

            side = LogSide(bootstrap, settings.node_name, "open")
            work = [*also, until_stopped(), side.publish(files, stop, self._health), self._log_first_decisions(side)]
            work += [self._keep_broker(self._broker, side)] if self._broker is not None else []
            self._beside = [asyncio.create_task(one) for one in work]
            done, _ = await asyncio.wait([*self._keeping, *self._beside], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._end()

    async def _bootstrap(self) -> Cluster:
        """Return the Kafka cluster; starts the embedded broker if none is given."""
        if self._settings.bootstrap is not None:
            return self._settings.bootstrap
        try:
            self._broker = EmbeddedBroker(KAFKA_PORT)
            await self._broker.start()
        except BrokerError as exc:
            # Other errors do not depend on the port.
            log.debug("%s", exc)
            self._broker = EmbeddedBroker()
            await self._broker.start()
        log.warning("%s; it listens on %s", NOTICE, self._broker.bootstrap)
        log.info("%s", READERS)
        return self._broker.bootstrap

    async def _log_first_decisions(self, side: LogSide) -> None:
        await asyncio.gather(*(part.ready.wait() for part in self._parts))
        while self._health.not_ready:  # noqa: ASYNC110 - a plain value, filled by the publisher
            await asyncio.sleep(0.05)
        log.info("ready in %.1f s", (self._clock.mono_ns() - self._started_ns) / 1e9)
        self._ready.set()
        async for line in side.first_decisions(self._started_ms):
            log.info("%s", line)
        await asyncio.Event().wait()

    async def _keep_console(self, settings: UpSettings, bootstrap: Cluster) -> None:
        """Start the console once the loop is ready, so that it does not delay the loop."""
        await self._ready.wait()
        if settings.no_console or not console_process.is_installed():
            if not settings.no_console:
                log.info(console_process.LACKING)
            await asyncio.Event().wait()
        logs_as = ("--log-level", settings.log_level, "--log-format", settings.log_format)
        self._console = console_process.console_part(bootstrap, settings.state_folder / "console", *logs_as)
        await console_process.keep(self._console)

    async def _keep_broker(self, broker: EmbeddedBroker, side: LogSide) -> None:
        while True:
            code = await broker.wait()
            log.warning("the embedded broker ended (%s); restarting it, without its former records", how(code))
            backoff = Backoff(BACKOFF_S, BACKOFF_S_MAX)
            while not broker.running:
                try:
                    await broker.start()
                except BrokerError as exc:
                    log.warning("%s", exc)
                    await asyncio.sleep(backoff.next_s())
            await side.apply_topics()

    async def _end(self) -> None:
        """Stop agent, worker, publisher and broker, so that each can still report."""
        await ended(*self._keeping)
        stopping = [] if self._console is None else [asyncio.create_task(self._console.stop(PART_STOP_S))]
        for part in self._parts:
            await part.stop(PART_STOP_S)
        await asyncio.gather(*stopping)
        await ended(*self._beside)
        if self._broker is not None:
            await self._broker.stop()
        log.info("stopped")


def _find_groups(settings: UpSettings) -> None:
    """Find the pods' cgroups before anything starts. Raises SlacktideError if there are none, or a file is invalid."""
    try:
        agent_options.groups_of(settings.cgroup_mount, settings.proc_mount, settings.kubepods, settings.host_workloads)
    except CgroupError as exc:
        if settings.kubepods is not None or settings.host_workloads is not None:
            raise
        raise NoPodsHereError(exc.path, f"{exc.why}; to try Slacktide without pods: slacktide up --sample") from exc


def parts_of(settings: UpSettings, bootstrap: Cluster, inventory: Path) -> list[Part]:
    """Return agent and worker as children, in the order in which they stop."""
    port = settings.metrics_port
    ports = (port, port + 1) if port else (free_port(), free_port())
    shared = ["--bootstrap", str(bootstrap), "--metrics-host", settings.metrics_host]
    shared += ["--kafka-config", security] if (security := bootstrap.security.file) else []
    shared += ["--log-level", settings.log_level, "--log-format", settings.log_format]
    embedded = settings.bootstrap is None
    stream = ["--session-timeout", str(SESSION_S), "--fetch-wait-ms", str(SAMPLES_WAIT_MS)] if embedded else []
    agent = ["--fetch-wait-ms", str(FETCH_WAIT_MS)] if embedded else []
    agent += ["--node-name", settings.node_name, "--inventory", str(inventory)]
    agent += ["--cgroup-mount", str(settings.cgroup_mount), "--proc-mount", str(settings.proc_mount)]
    agent += ["--state-folder", str(settings.state_folder), "--sample-interval", str(settings.sample_interval)]
    agent += ["--look-interval", str(settings.look_interval), "--pressure-trigger", settings.pressure_trigger]
    agent += ["--eviction-grace", str(settings.eviction_grace)]
    agent += settings.arguments()
    agent += ["--restore-on-exit"] if settings.restore_on_exit else []
    agent += ["--dry-run"] if settings.dry_run else []
    return [
        Part(name, [name, *shared, "--metrics-port", str(at), *more], f"http://{reachable(settings.metrics_host)}:{at}")
        for name, at, more in zip(("agent", "stream"), ports, (agent, stream), strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings(process.ProcessSettings):
    """The files to publish, and the Kafka cluster."""

    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    node_name: str = named("Name of the node, which is the key of its records.")
    policy: Path = _policy()
    inventory: Path | None = setting(
        "File with the node, in the format of `kubectl get node -o yaml`. Reread when it changes. Without a Node, "
        "it is this machine.",
        file(),
        default=None,
    )
    node_source: NodeSource = setting(
        "Nodes that workers accept. inventory: nodes with an inventory record. open: also nodes that only send "
        "samples. The published policy record carries it.",
        click.Choice(["inventory", "open"]),
        default="inventory",
    )
    state_folder: Path = stored("Folder for the last valid files. Each process needs its own.")
    metrics_port: int = process.metrics_port(PUBLISH_PORT)


@click.command(epilog="Example: slacktide publish --bootstrap kafka-1:9092 --policy policy.yaml --node-name db-7")
@configured(PublishSettings)
def publish(settings: PublishSettings) -> None:
    """Publish the policy and the inventory of a node to Kafka, each minute and when a file changes.

    `slacktide up` and the bridge do this themselves. The command creates missing topics. It runs until SIGTERM.
    """
    from slacktide.deploy.cli.log_side import LogSide  # noqa: PLC0415 - loads Kafka: not for --help

    itself = partial(machine.node_item, settings.node_name)
    inventory = settings.inventory or machine.inventory(settings.node_name, settings.state_folder)
    files = OperatorFiles(settings.policy, inventory, settings.node_name, settings.state_folder, machine=itself)
    side = LogSide(settings.bootstrap, settings.node_name, settings.node_source)
    process.run("publish", settings, lambda stop, health: side.publish(files, stop, health))
