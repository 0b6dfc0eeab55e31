"""``slacktide webhook``: the admission webhook for pods and evictions."""
# ruff: noqa: RUF009 - setting() makes a field

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.agents.clock import SystemClock
from slacktide.agents.listening import ALL
from slacktide.deploy.runtime import process
from slacktide.deploy.runtime.settings import (
    LOOPBACK_BROKER,
    PORT,
    Kafka,
    configured,
    file,
    folder,
    kubeconfig,
    process_name,
    setting,
)
from slacktide.schemas.connection import Cluster
from slacktide.schemas.policy.configmap import NAME

METRICS_PORT = 9467


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings(process.ProcessSettings):
    """Settings of one replica."""

    bootstrap: Cluster = setting(
        "Addresses of Kafka brokers, separated by commas. The webhook reads and publishes missed pods there.",
        Kafka(),
        default=LOOPBACK_BROKER,
    )
    host: str = setting("Host address on which the webhook serves the API server.", default=ALL)
    port: int = setting("Port that it listens on.", PORT, default=8443)
    kubeconfig: Path | None = kubeconfig()
    namespace: str = setting(
        "Namespace of the webhook's Service and Secret.", default="", shown="that of the service account or kubeconfig"
    )
    policy_namespace: str = setting("Namespace of the policy's ConfigMap.", default="koordinator-system")
    policy_name: str = setting("Name of the policy's ConfigMap.", default=NAME)
    cert_folder: Path | None = setting(
        "Folder with tls.crt and tls.key, such as cert-manager's. Reread when they change. Without it, the "
        "webhook creates and rotates a certificate in the Secret slacktide-webhook-tls, and writes its CA to both "
        "webhook configurations.",
        folder(),
        default=None,
    )
    client_ca: Path | None = setting(
        "File with the CA of the API server's client certificate. Other clients are rejected, so the API server must "
        "be configured to present one. Without it, every client is accepted.",
        file(),
        default=None,
    )
    client_names: str = setting(
        "Common names of accepted client certificates, separated by commas.",
        default="",
        shown="any that --client-ca signed",
    )
    queue: bool = setting(
        "Add a scheduling gate to new pods that name a queue. The bridge removes it when a pod is admitted.",
        click.BOOL,
        default=False,
    )
    gangs: bool = setting(
        "Add a scheduling gate to new pods of gangs with schedulerName koord-scheduler. The scheduler removes it when "
        "all of the gang have a node.",
        click.BOOL,
        default=False,
    )
    metrics_port: int = process.metrics_port(METRICS_PORT)


@click.command(epilog="Example: slacktide webhook --bootstrap kafka-1:9092 --metrics-host 0.0.0.0")
@configured(WebhookSettings)
def command(settings: WebhookSettings) -> None:
    """Run the admission webhook: apply ClusterColocationProfiles to new pods, and limit which pods an agent may evict.

    Replicas share one certificate. On SIGTERM it serves for three more seconds, so that no request is lost.
    """
    from slacktide.agents.cluster.certificates import Clients  # noqa: PLC0415
    from slacktide.agents.cluster.watching import ConfigMapName  # noqa: PLC0415
    from slacktide.agents.cluster.webhook import webhook  # noqa: PLC0415 - loads Kafka and HTTP: not for --help
    from slacktide.agents.kubernetes.access import access  # noqa: PLC0415

    names = frozenset(name.strip() for name in settings.client_names.split(",") if name.strip())
    if names and settings.client_ca is None:
        raise click.UsageError("--client-names requires --client-ca: without it, clients need no certificate")
    found = asyncio.run(access(settings.kubeconfig))
    given = webhook.WebhookSettings(
        access=found,
        namespace=settings.namespace or found.namespace,
        host=settings.host,
        port=settings.port,
        bootstrap=settings.bootstrap,
        config_map=ConfigMapName(namespace=settings.policy_namespace, name=settings.policy_name),
        replica=process_name(),
        queue=settings.queue,
        gangs=settings.gangs,
        cert_folder=settings.cert_folder,
        clients=None if settings.client_ca is None else Clients(ca=settings.client_ca, names=names),
    )
    process.run("webhook", settings, lambda stop, health: webhook.run(given, stop, health, SystemClock().wall_ms))
