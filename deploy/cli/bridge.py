"""``slacktide bridge``: the bridge between Kafka and the Kubernetes API server."""
# ruff: noqa: RUF009 - setting() makes a field

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from slacktide.deploy.runtime import garbage, process
from slacktide.deploy.runtime.settings import (
    LOOPBACK_BROKER,
    PORT,
    Kafka,
    Label,
    WorkloadName,
    configured,
    kubeconfig,
    process_name,
    setting,
)
from slacktide.schemas.connection import Cluster
from slacktide.schemas.policy.configmap import NAME

METRICS_PORT = 9466


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeCommandSettings(process.ProcessSettings):
    """Settings of one replica of the bridge."""

    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    kubeconfig: Path | None = kubeconfig()
    namespace: str = setting(
        "Namespace of the lease slacktide-bridge. Without it, that of the service account or kubeconfig.", default=""
    )
    policy_namespace: str = setting("Namespace of the policy's ConfigMap.", default="koordinator-system")
    policy_name: str = setting("Name of the policy's ConfigMap.", default=NAME)
    node_selector: str | None = setting(
        "Write only to Nodes with this label. Nodes where it has another value are published, and another controller, "
        "such as Koordinator, may write to them. Nodes without it are ignored. Without this option, all are written "
        "to.",
        Label(),
        default=None,
    )
    replica_name: str = setting(
        "Name of this replica in the lease.", default=process_name, shown="host name and process id"
    )
    node_proof: Literal["off", "required"] = setting(
        "required: samples, outcomes and minutes of services count only if their node signed them. The published "
        "policy carries it to all parts and overrides the ConfigMap.",
        click.Choice(["off", "required"]),
        default="off",
    )
    enrol_host: str = setting("Host address of the enrolment endpoint, which issues agents' keys.", default="127.0.0.1")
    enrol_port: int | None = setting(
        "Port of the enrolment endpoint. 0: a free port, which is logged at start. Without it, agents cannot enrol.",
        PORT,
        default=None,
    )
    deployment: str | None = setting(
        "The bridge's Deployment. If it or the bridge's RBAC rights are deleted, the bridge removes batch and mid "
        "resources from Nodes. Without it, Nodes keep them.",
        WorkloadName(),
        default=None,
    )
    queue: bool = setting(
        "Publish queues and queued objects to Kafka, and start and stop these as `slacktide queue run` decides.",
        click.BOOL,
        default=False,
    )
    reservation_image: str = setting(
        "Hold the room of Reservations by pods of this image, such as registry.k8s.io/pause:3.10. Without it, "
        "Reservations are ignored.",
        default="",
    )
    pending_deadlines: bool = setting(
        "Fail pods of Jobs that are pending for longer than their annotation slacktide.io/pending-deadline-seconds.",
        click.BOOL,
        default=False,
    )
    metrics_port: int = process.metrics_port(METRICS_PORT)


@click.command(epilog="Example: slacktide bridge --bootstrap kafka-1:9092 --metrics-host 0.0.0.0")
@configured(BridgeCommandSettings)
def command(settings: BridgeCommandSettings) -> None:
    """Publish Kubernetes' nodes and policy to Kafka, and write batch and mid resources from Kafka to Kubernetes.

    Run two replicas. The holder of the lease slacktide-bridge works, the other waits. On SIGTERM it releases the
    lease. If its --deployment is deleted, it removes the resources from Nodes.
    """
    from slacktide.agents.cluster.bridge import bridge  # noqa: PLC0415 - loads Kafka and HTTP: not for --help
    from slacktide.agents.cluster.bridge.writing import NodeSelector  # noqa: PLC0415
    from slacktide.agents.cluster.enrolment.enrolment import EnrolmentSettings  # noqa: PLC0415
    from slacktide.agents.cluster.watching import ConfigMapName  # noqa: PLC0415
    from slacktide.agents.kubernetes.access import access  # noqa: PLC0415

    garbage.seldom()
    found = asyncio.run(access(settings.kubeconfig))
    namespace = settings.namespace or found.namespace
    enrolment = None
    if settings.enrol_port is not None:
        enrolment = EnrolmentSettings(namespace=namespace, host=settings.enrol_host, port=settings.enrol_port)
    selector = None
    if settings.node_selector is not None:
        selector = NodeSelector(*settings.node_selector.split("="))
    given = bridge.BridgeSettings(
        bootstrap=settings.bootstrap,
        access=found,
        replica=settings.replica_name,
        namespace=namespace,
        config_map=ConfigMapName(namespace=settings.policy_namespace, name=settings.policy_name),
        node_selector=selector,
        node_proof=settings.node_proof,
        enrolment=enrolment,
        deployment=settings.deployment,
        queue=settings.queue,
        reservation_image=settings.reservation_image,
        pending_deadlines=settings.pending_deadlines,
    )
    process.run("bridge", settings, lambda stop, health: bridge.run(given, stop, health))
