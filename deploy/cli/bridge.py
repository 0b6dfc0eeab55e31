"""``slacktide bridge``: what stands between the log and the Kubernetes API server."""
# ruff: noqa: RUF009 - setting() makes a field

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from slacktide.deploy.cli import garbage, process
from slacktide.deploy.cli.settings import (
    LOOPBACK_BROKER,
    PORT,
    Kafka,
    WorkloadName,
    configured,
    file,
    node_name,
    setting,
)
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.schemas.policy.configmap import NAME

METRICS_PORT = 9466


def replica_name() -> str:
    """Host name and process id: a pod that restarts is another."""
    return f"{node_name()}-{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeCommandSettings(process.ProcessSettings):
    """How one replica of the bridge runs."""

    bootstrap: Cluster = setting("Kafka, several with commas.", Kafka(), default=LOOPBACK_BROKER)
    kubeconfig: Path | None = setting(
        "How the API server is reached. Not given: $KUBECONFIG, else the pod's service account, else ~/.kube/config.",
        file(),
        default=None,
    )
    namespace: str = setting(
        "Where the lease slacktide-bridge is. Not given: that of the service account or the kubeconfig.", default=""
    )
    policy_namespace: str = setting("Where the operator's ConfigMap is.", default="koordinator-system")
    policy_name: str = setting("Name of the operator's ConfigMap.", default=NAME)
    replica_name: str = setting(
        "Name of this replica in the lease.", default=replica_name, shown="host name and process id"
    )
    node_proof: Literal["off", "required"] = setting(
        "Whether samples and outcomes count only with the proof of their node. The published policy carries it to all "
        "parts, whatever the ConfigMap says.",
        click.Choice(["off", "required"]),
        default="off",
    )
    enrol_host: str = setting("Address at which agents ask for the keys of their nodes.", default="127.0.0.1")
    enrol_port: int | None = setting(
        "Its port; 0: any free one, said at start. None: no agent can enrol.", PORT, default=None
    )
    deployment: str | None = setting(
        "The bridge's Deployment, as NAMESPACE/NAME: where it or the bridge's rights are deleted, the bridge removes "
        "batch and mid resources from the Nodes that it wrote. None: Nodes keep them.",
        WorkloadName(),
        default=None,
    )
    metrics_port: int = setting("Its port; 0: any free one, said at start.", PORT, default=METRICS_PORT)


@click.command(epilog="Example: slacktide bridge --bootstrap kafka-1:9092 --metrics-host 0.0.0.0")
@configured(BridgeCommandSettings)
def command(settings: BridgeCommandSettings) -> None:
    """Tell the log of Kubernetes' nodes and policy, and Kubernetes of the batch and mid resources that the log says.

    Run two: one works, by the lease slacktide-bridge, the other waits. SIGTERM: gives the lease back; where
    its --deployment is deleted, it removes the resources from Nodes.
    """
    from slacktide.agents.cluster.bridge import bridge  # noqa: PLC0415 - loads Kafka and HTTP: not for --help
    from slacktide.agents.cluster.bridge.sources import ConfigMapName  # noqa: PLC0415
    from slacktide.agents.cluster.enrolment.enrolment import EnrolmentSettings  # noqa: PLC0415
    from slacktide.agents.kubernetes import access  # noqa: PLC0415

    garbage.seldom()
    found = asyncio.run(access(settings.kubeconfig))
    namespace = settings.namespace or found.namespace
    enrolment = None
    if settings.enrol_port is not None:
        enrolment = EnrolmentSettings(namespace=namespace, host=settings.enrol_host, port=settings.enrol_port)
    given = bridge.BridgeSettings(
        bootstrap=settings.bootstrap,
        access=found,
        replica=settings.replica_name,
        namespace=namespace,
        config_map=ConfigMapName(namespace=settings.policy_namespace, name=settings.policy_name),
        node_proof=settings.node_proof,
        enrolment=enrolment,
        deployment=settings.deployment,
    )

    async def work(stop: asyncio.Event, health: Health) -> None:
        await bridge.run(given, stop, health)

    process.run("bridge", settings, work)
