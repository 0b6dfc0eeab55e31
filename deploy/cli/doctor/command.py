"""``slacktide doctor``: gathers facts, and checks and reports them."""
# ruff: noqa: RUF009 - setting() makes a field

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from slacktide.agents.files import load_yaml
from slacktide.agents.node.cgroup.hierarchy import PlainHost
from slacktide.deploy.cli.agent import METRICS_PORT
from slacktide.deploy.cli.agent_options import (
    API_CA,
    API_SERVER,
    API_TOKEN,
    HOST_WORKLOADS,
    KUBEPODS,
    access_of,
    refuse_alone,
    refuse_both,
)
from slacktide.deploy.cli.doctor import machine_facts
from slacktide.deploy.cli.doctor.agent_checks import (
    agent_findings,
    api_findings,
    kafka_findings,
    login_findings,
    node_findings,
)
from slacktide.deploy.cli.doctor.cluster_checks import cluster_findings, installed_findings, preflight_findings
from slacktide.deploy.cli.doctor.finding import Finding, as_table, plain, ready
from slacktide.deploy.cli.doctor.machine_checks import (
    cgroup_findings,
    host_findings,
    machine_findings,
    writable,
)
from slacktide.deploy.cli.doctor.policy_checks import policy_findings
from slacktide.deploy.cli.doctor.swap import gather_swap, swap_findings
from slacktide.deploy.runtime.settings import PORT, Kafka, configured, file, folder, named, setting, stored
from slacktide.deploy.runtime.text import show_result
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import ConfigError
from slacktide.schemas.policy import Parsed, parse


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorSettings:
    """The places to check, as the agent's options of the same names."""

    bootstrap: Cluster | None = setting(
        "Addresses of Kafka brokers to check, separated by commas. Without it, Kafka is not checked.",
        Kafka(),
        default=None,
    )
    api_server: str | None = setting(API_SERVER, default=None)
    api_token: Path | None = setting(API_TOKEN, file(), default=None)
    api_ca: Path | None = setting(API_CA, file(), default=None)
    cluster: bool = setting(
        "Check a cluster instead of this machine, for example before an installation. It checks versions, kubelets, "
        "Koordinator, quotas, LimitRanges, pods without requests and remains of a removal. It reports nodes without a "
        "ready agent, and an invalid policy. It computes the batch "
        "resources that the cluster could offer. With --bootstrap, also check Kafka and whether topics may be "
        "created. Requires rights to list nodes, pods, quotas and limit ranges.",
        default=False,
    )
    kubeconfig: Path | None = setting(
        "Kubeconfig file of the cluster; implies --cluster. Default: $KUBECONFIG, the pod's service account, "
        "or ~/.kube/config.",
        file(),
        default=None,
    )
    preflight: bool = setting(
        "With --cluster: leave out what is installed already: its agents and its policy. The chart's Job before an "
        "installation or upgrade uses it, since an upgrade may repair these.",
        default=False,
    )
    kubelet_insecure: bool = setting(
        "With --cluster: accept self-signed certificates of kubelets, as agents do with this option.", default=False
    )
    kafka_logins: Path | None = setting(
        "With --cluster and --bootstrap: also check the Kafka login of each part. The folder contains one "
        "folder for each part, such as agent, with the files of /etc/slacktide/kafka. A part that logs in by a "
        "token also has a file named token.",
        folder(),
        default=None,
    )
    policy: Path | None = setting(
        "File with a policy. Doctor lists its fields that have no effect on this machine.", file(), default=None
    )
    kubepods: str | None = setting(KUBEPODS, default=None)
    host_workloads: Path | None = setting(HOST_WORKLOADS, file(), default=None)
    cgroup_mount: Path = setting("Mount point of control groups.", folder(exists=False), default=Path("/sys/fs/cgroup"))
    proc_mount: Path = setting("Mount point of procfs.", folder(exists=False), default=Path("/proc"))
    state_folder: Path = stored("State folder of the agent.")
    node_name: str = named("Name of the node whose samples are checked in Kafka.")
    metrics_host: str = setting("Host address of a running agent's endpoints.", default="127.0.0.1")
    metrics_port: int = setting("Port of a running agent's endpoints.", PORT, default=METRICS_PORT)
    output: Literal["table", "json"] = setting("Output format.", click.Choice(["table", "json"]), default="table")

    def __post_init__(self) -> None:
        """Raise click.UsageError if two options exclude each other, or one lacks another."""
        refuse_both(self.kubepods, self.host_workloads)
        refuse_alone(self.api_server, self.api_token, self.api_ca)


@click.command(epilog="Example: slacktide doctor --bootstrap kafka-1:9092 --policy policy.yaml")
@configured(DoctorSettings)
def command(settings: DoctorSettings) -> None:
    """Check whether this machine, Kafka and the cluster are ready for an agent and a worker.

    It changes nothing: it opens control files for writing but writes nothing, and sends no record. Run it as the user
    that the agent will be, and with its token, as in its pod. With --cluster, look at a cluster as its operator.

    Exit code 0: nothing failed, warnings are allowed; 1: something failed.

    With --output json: {"ready": BOOL, "failed": COUNT, "warnings": COUNT, "checks": [{"check": NAME,
    "verdict": "ok" | "warning" | "failed", "found": TEXT, "needed": TEXT, "advice": TEXT}, ...]}
    """
    findings = list(_findings(settings))
    show_result(plain(findings), settings.output, lambda: as_table(findings))
    if not ready(findings):
        raise click.exceptions.Exit(1)


def _findings(settings: DoctorSettings) -> Iterator[Finding]:
    if not settings.cluster and settings.kubeconfig is None:
        yield from _of_machine(settings)
        return
    from slacktide.deploy.cli.doctor import cluster_facts  # noqa: PLC0415 - loads HTTP: not for --help

    cluster, preflight = asyncio.run(
        cluster_facts.gather(settings.kubeconfig, kubelet_insecure=settings.kubelet_insecure)
    )
    yield from preflight_findings(preflight)
    yield from cluster_findings(cluster)
    if not settings.preflight:
        installed = asyncio.run(cluster_facts.gather_installed(settings.kubeconfig, settings.bootstrap))
        yield from installed_findings(installed)
    if settings.bootstrap is not None:
        from slacktide.deploy.cli.doctor import kafka_facts  # noqa: PLC0415 - loads Kafka: not for --help

        yield from kafka_findings(asyncio.run(kafka_facts.gather_kafka(settings.bootstrap, to_create=True)))
        if settings.kafka_logins is not None:
            logins = kafka_facts.gather_logins(settings.bootstrap.addresses, settings.kafka_logins)
            yield from login_findings(asyncio.run(logins))


def _of_machine(settings: DoctorSettings) -> Iterator[Finding]:
    host = None
    if settings.host_workloads is not None:
        host = machine_facts.gather_host(settings.host_workloads, settings.cgroup_mount, settings.proc_mount)
        yield from host_findings(host)
    if isinstance(host, ConfigError):  # it does not name the groups to look at
        return
    layout = None if host is None else PlainHost(host.best_effort)
    cgroups = machine_facts.gather_cgroups(settings.cgroup_mount, settings.kubepods, layout)
    machine = machine_facts.gather_machine(machine_facts.Mounts(proc=settings.proc_mount), settings.state_folder)
    yield from machine_findings(machine, quota_writable=writable(cgroups, "cpu-quota"))
    yield from cgroup_findings(cgroups)
    yield from swap_findings(*gather_swap(settings.proc_mount))
    agent = machine_facts.gather_agent(
        settings.metrics_host, settings.metrics_port, settings.state_folder, settings.proc_mount
    )
    yield from agent_findings(agent)
    if settings.bootstrap is not None:
        from slacktide.deploy.cli.doctor import kafka_facts  # noqa: PLC0415 - loads Kafka: not for --help

        yield from kafka_findings(asyncio.run(kafka_facts.gather_kafka(settings.bootstrap)))
        explained = asyncio.run(kafka_facts.node_freshness(settings.bootstrap, settings.node_name))
        if explained is not None:
            yield from node_findings(settings.node_name, explained, runs=agent is not None)
    access = access_of(settings.api_server, settings.api_token, settings.api_ca)
    if access is not None:
        yield from api_findings(machine_facts.gather_api(access))
    if settings.policy is not None:
        parsed: Parsed | ConfigError
        try:
            parsed = parse(load_yaml(settings.policy), str(settings.policy))
        except ConfigError as error:
            parsed = error
        yield from policy_findings(str(settings.policy), parsed, cgroups, machine.cpus)
