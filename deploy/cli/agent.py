"""``slacktide agent``: one node's agent, and the removal of the limits that it left."""
# ruff: noqa: RUF009 - setting() makes a field

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slacktide.agents.http import Access
from slacktide.agents.node.pressure import Stall
from slacktide.deploy.cli import agent_options, machine
from slacktide.deploy.cli.agent_options import (
    API_CA,
    API_SERVER,
    API_TOKEN,
    HOST_WORKLOADS,
    KUBEPODS,
    PodListSettings,
    access_of,
    refuse_alone,
    refuse_both,
)
from slacktide.deploy.cli.suggestions import Group
from slacktide.deploy.runtime import process
from slacktide.deploy.runtime.settings import (
    LOOPBACK_BROKER,
    Kafka,
    WorkloadName,
    configured,
    fetch_wait_ms,
    file,
    folder,
    named,
    setting,
    stored,
)
from slacktide.deploy.runtime.text import show
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health

if TYPE_CHECKING:  # not needed for --help
    from slacktide.agents.node.ahead import AheadSettings
    from slacktide.agents.node.apiserver import NodeWatch, Removal
    from slacktide.agents.node.cgroup.hierarchy import Hierarchy
    from slacktide.agents.node.evict.eviction_client import EvictionClient


log = logging.getLogger(__name__)

METRICS_PORT = 9464
SECONDS = click.FloatRange(0.1, 60)


class PressureTrigger(click.ParamType):
    """``on``, ``off`` or ``STALL/WINDOW``."""

    name = "on|off|STALL/WINDOW"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Parse a value, and reject it if the kernel would."""
        try:
            return str(Stall.parse(str(value)) or "off")
        except ValueError as exc:
            self.fail(str(exc), param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(PodListSettings):
    """Settings of a node, shared by the agent and the one-machine stack."""

    node_name: str = named("Name of this node, which is the key of its records.")
    cgroup_mount: Path = setting("Mount point of control groups.", folder(), default=Path("/sys/fs/cgroup"))
    proc_mount: Path = setting("Mount point of procfs.", folder(), default=Path("/proc"), hidden=True)
    inventory: Path | None = setting(
        "File with the node, and its pods if no kubelet lists them, in the format of `kubectl get node,pods -o "
        "yaml`. The agent rereads it when it changes. If it contains no Node, the node is this machine. Without "
        "the file, the agent uses the node's inventory record in Kafka, or else this machine without pods.",
        file(),
        default=None,
    )
    sample_interval: float = setting("Seconds between two samples.", SECONDS, default=1.0)
    restore_on_exit: bool = setting("Remove the limits of best-effort pods when the agent stops.", default=False)
    dry_run: bool = setting("Decide and report, but do not write to control groups.", default=False)
    eviction_grace: float = setting(
        "Most seconds between SIGTERM and SIGKILL of an evicted pod. A pod with a shorter grace period gets that.",
        click.FloatRange(0, 3_600),
        default=30.0,
    )
    state_folder: Path = stored(
        "Folder for the start counter, the last policy and pods, and unsent outcomes. Each agent needs its own."
    )
    look_interval: float = setting(
        "Seconds between two reads of the CPU time of latency-sensitive pods; 0.5 or more while best-effort pods use "
        "at most 2% of a CPU and are not paused. When latency-sensitive pods use 5% of the node more than "
        "in the last sample, the agent samples immediately. 0: no reads.",
        click.FloatRange(0, 1),
        default=0.05,
    )
    pressure_trigger: str = setting(
        "Take a sample immediately when latency-sensitive pods stall on CPU or memory for STALL ms within "
        "WINDOW ms. The kernel detects stalls (PSI), which costs nothing while no pod stalls.",
        PressureTrigger(),
        default=str(Stall()),
    )
    metrics_port: int = process.metrics_port(METRICS_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCommandSettings(NodeSettings):
    """Settings of a node agent."""

    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    api_server: str | None = setting(API_SERVER, default=None)
    api_token: Path | None = setting(API_TOKEN, file(), default=None)
    api_ca: Path | None = setting(API_CA, file(), default=None)
    enrol_url: str | None = setting(
        "URL of the bridge's enrolment endpoint, https://HOST:PORT, which issues the key that signs this node's "
        "records. Without it, records are not signed.",
        default=None,
    )
    enrol_token: Path = setting(
        "File with this pod's ServiceAccount token for the audience slacktide-enrolment. Read for each request.",
        file(),
        default=Path("/var/run/secrets/slacktide/enrolment/token"),
    )
    enrol_ca: Path = setting(
        "File with the CA certificates of the bridge. Read for each connection.",
        file(),
        default=Path("/var/run/secrets/slacktide/enrolment/ca.crt"),
    )
    daemon_set: str | None = setting(
        "This agent's DaemonSet. If it is deleted when the agent stops, the agent removes all limits. Without it, "
        "limits stay in force.",
        WorkloadName(),
        default=None,
    )
    kubelet_folder: Path | None = setting(
        "Root directory of the kubelet, such as /var/lib/kubelet. The agent reads NUMA allocations there and "
        "publishes zones (docs/numa.md). Without it, no zones are published.",
        folder(),
        default=None,
    )
    zones_folder: Path = setting(
        "Where the kernel lists NUMA zones.",
        folder(exists=False),
        default=Path("/sys/devices/system/node"),
        hidden=True,
    )
    pod_pressure: bool = setting(
        "Read each 10 s how long each pod waits for CPU, memory and IO (PSI): six series of each pod, and a line of "
        "slacktide explain pod.",
        default=False,
    )
    guard_deadline: float = setting(
        "Seconds to wait for the stream's answer to a sample before the agent decides by itself.", SECONDS, default=1.0
    )
    fetch_wait_ms: int = fetch_wait_ms(500)

    def __post_init__(self) -> None:
        """Raise click.UsageError if options exclude or require each other."""
        NodeSettings.__post_init__(self)
        refuse_alone(self.api_server, self.api_token, self.api_ca)
        if self.daemon_set is not None and self.host_workloads is not None:
            raise click.UsageError(
                "--daemon-set and --host-workloads exclude each other: a DaemonSet's agent manages pods of a "
                "cluster; remove one of both"
            )
        if self.api_server is not None and self.host_workloads is not None:
            raise click.UsageError(
                "--api-server and --host-workloads exclude each other: --api-server evicts pods of a cluster; "
                "remove one of both"
            )


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="Example: slacktide agent --bootstrap kafka-1:9092 --inventory node.yaml --dry-run",
)
@configured(AgentCommandSettings)
def command(settings: AgentCommandSettings) -> None:
    """Run one node's agent. It samples the node and applies the stream's answers, or its own decisions without them.

    On SIGTERM it thaws frozen pods and stops. Limits stay in force unless --restore-on-exit is given, or its
    --daemon-set is deleted.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    process.run("agent", settings, lambda stop, health: _run(settings, stop, health))


async def _run(settings: AgentCommandSettings, stop: asyncio.Event, health: Health) -> None:
    # Import Kafka late, not for --help.
    from slacktide.agents.node import loop  # noqa: PLC0415
    from slacktide.agents.node.agent import AgentSettings  # noqa: PLC0415
    from slacktide.agents.node.cgroup.kernel import CgroupKernel  # noqa: PLC0415
    from slacktide.agents.node.cgroup.pod_pressure import PodPressureReader  # noqa: PLC0415
    from slacktide.agents.node.service_times import ServiceTimesReader  # noqa: PLC0415
    from slacktide.agents.node.services import Metered  # noqa: PLC0415
    from slacktide.agents.node.settings import LoopSettings  # noqa: PLC0415
    from slacktide.agents.node.zones.publisher import ZonesFolders  # noqa: PLC0415
    from slacktide.agents.node.zones.reading import ExclusiveCpus  # noqa: PLC0415

    inventory = settings.inventory
    if inventory is None:
        inventory = machine.inventory(settings.node_name, settings.state_folder, settings.proc_mount)
        log.warning("%s", machine.description(settings.node_name, settings.lister))
    settings.state_folder.mkdir(parents=True, exist_ok=True)
    mounts = settings.cgroup_mount, settings.proc_mount, settings.kubepods
    hierarchy, host = agent_options.groups_of(*mounts, settings.host_workloads)
    kernel = CgroupKernel(*mounts, settings.state_folder, hierarchy.layout)
    kubelet = agent_options.kubelet_of(settings, kernel)
    eviction_client, node_watch, removal = _by_api_server(settings)
    enrol = zones = None
    if settings.enrol_url is not None:
        enrol = Access(url=settings.enrol_url, token=settings.enrol_token, ca=settings.enrol_ca)
    if settings.kubelet_folder is not None:
        zones = ZonesFolders(sys_folder=settings.zones_folder, kubelet_folder=settings.kubelet_folder)
    wanted = LoopSettings(
        node=settings.node_name,
        bootstrap=settings.bootstrap,
        inventory=inventory,
        machine=partial(machine.node_item, settings.node_name, settings.proc_mount),
        from_kafka=settings.inventory is None,
        state_folder=settings.state_folder,
        lister=kubelet or host,
        enrol=enrol,
        eviction_client=eviction_client,
        removal=removal,
        node_watch=node_watch,
        exclusive=ExclusiveCpus(kernel.hierarchy, settings.kubelet_folder),
        zones=zones,
        pod_pressure=PodPressureReader(hierarchy.unified, kernel.pod_group) if settings.pod_pressure else None,
        services=Metered(reader=ServiceTimesReader(kernel.hierarchy)),
        sample_interval_ms=round(settings.sample_interval * 1000),
        fetch_wait_ms=settings.fetch_wait_ms,
        agent=AgentSettings(
            guard_deadline_ms=round(settings.guard_deadline * 1000),
            dry_run=settings.dry_run,
            grace_ms_max=round(settings.eviction_grace * 1000),
            restore_on_exit=settings.restore_on_exit,
        ),
        ahead=_ahead(settings, kernel.hierarchy),
    )
    try:
        await loop.run(kernel, wanted, stop, health)
    finally:
        for one in (kernel, eviction_client, kubelet):
            if one is not None:
                one.close()


def _by_api_server(settings: AgentCommandSettings) -> tuple[EvictionClient | None, NodeWatch | None, Removal | None]:
    """Return what works through the API server: evictions, a watch on this Node, and the detector of a removal.

    Raises:
        click.UsageError: there is no API server, which --daemon-set needs.
        SlacktideError: its address is invalid.
    """
    from slacktide.agents.node.apiserver import (  # noqa: PLC0415
        ApiServer,
        NodeWatch,
        Removal,
    )
    from slacktide.agents.node.evict.eviction_client import EvictionClient  # noqa: PLC0415

    if settings.host_workloads is not None:
        return None, None, None
    access = access_of(settings.api_server, settings.api_token, settings.api_ca)
    if access is not None:
        log.info("pods are evicted through the API server", extra={"url": access.url})
        removal = None if settings.daemon_set is None else Removal(access, settings.daemon_set)
        return EvictionClient(ApiServer(access)), NodeWatch(ApiServer(access), settings.node_name), removal
    if settings.kubelet is not None:
        log.warning(
            "no API server: evicted pods are ended through their control groups, and the kubelet may restart "
            "them; to evict through the API server, give --api-server"
        )
    if settings.daemon_set is not None:
        raise click.UsageError("--daemon-set needs an API server: give --api-server, or run the agent in a pod")
    return None, None, None


def _ahead(settings: NodeSettings, hierarchy: Hierarchy) -> AheadSettings:
    """Return the settings of triggers for a sample before its tick."""
    from slacktide.agents.node.ahead import AheadSettings, Looked  # noqa: PLC0415
    from slacktide.agents.node.pressure import LatencySensitiveUse, StallReader, Waited, pressure_files  # noqa: PLC0415

    stall, look_ms = Stall.parse(settings.pressure_trigger), round(settings.look_interval * 1000)
    pressure = use = None
    if stall:
        pressure = Waited(stall=stall, files=lambda: pressure_files(hierarchy, settings.proc_mount))
    if look_ms:
        look = StallReader(hierarchy, settings.proc_mount).look
        use = Looked(interval_ms=look_ms, cpu_ns=LatencySensitiveUse(hierarchy).cpu_ns, stall=look)
    return AheadSettings(pressure=pressure, use=use)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreSettings:
    """The node, and its agent's state folder."""

    node_name: str = named("Name of this node.")
    cgroup_mount: Path = setting("Mount point of control groups.", folder(), default=Path("/sys/fs/cgroup"))
    proc_mount: Path = setting("Mount point of procfs.", folder(), default=Path("/proc"), hidden=True)
    kubepods: str | None = setting(KUBEPODS, default=None)
    host_workloads: Path | None = setting(HOST_WORKLOADS, file(), default=None)
    inventory: Path | None = setting(
        "File with the node and its pods, in the format of `kubectl get node,pods -o yaml`. Without it, the "
        "agent's last known pods.",
        file(),
        default=None,
    )
    state_folder: Path = stored("State folder of the agent. The command empties it when no limit is left.")

    def __post_init__(self) -> None:
        """Raise click.UsageError if options exclude each other, or the state folder does not exist."""
        refuse_both(self.kubepods, self.host_workloads)
        if self.inventory is None and not self.state_folder.is_dir():
            raise click.UsageError(
                f"the state folder {self.state_folder} does not exist: give its path with --state-folder. If it "
                "was lost, give the node's pods with --inventory"
            )


@command.command("restore", epilog="Example: slacktide agent restore --state-folder /var/lib/slacktide")
@configured(RestoreSettings)
def restore(settings: RestoreSettings) -> None:
    """Lift all limits that an agent left in force on this node, and print them. No agent may run here.

    It lifts the limit of best-effort pods, each knob that the state folder names, and each that holds what the agent's
    rules set. Exit codes: 0 nothing is held any more, 1 something is.
    """
    from slacktide.agents.node.cgroup.kernel import CgroupKernel  # noqa: PLC0415 - not for --help
    from slacktide.agents.node.restoring import restored  # noqa: PLC0415

    mounts = settings.cgroup_mount, settings.proc_mount, settings.kubepods
    hierarchy, _ = agent_options.groups_of(*mounts, settings.host_workloads)
    kernel = CgroupKernel(*mounts, settings.state_folder, hierarchy.layout)
    try:
        done = restored(
            kernel,
            settings.node_name,
            settings.state_folder,
            settings.inventory,
            lambda: machine.node_item(settings.node_name, settings.proc_mount),
        )
    finally:
        kernel.close()
    for one in done.outcomes:
        change = f"{one.knob.knob}: " if one.knob is not None else ""
        show(f"{one.result:<8} {one.target} {change}{one.reason}")
    if not done.clean:
        raise click.ClickException(
            "some limits are still in force, as listed above: correct the reason, then run the command again"
        )
    show(f"no limits are in force on this node; {settings.state_folder} is now empty")
