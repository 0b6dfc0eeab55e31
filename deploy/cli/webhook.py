"""``slacktide webhook``: what the API server asks about new pods, and about evictions by agents."""
# ruff: noqa: RUF009 - setting() makes a field

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.agents.clock import SystemClock
from slacktide.agents.listening import ALL
from slacktide.deploy.cli import process
from slacktide.deploy.cli.bridge import replica_name
from slacktide.deploy.cli.settings import LOOPBACK_BROKER, PORT, Kafka, configured, file, folder, setting
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health

METRICS_PORT = 9467


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings(process.ProcessSettings):
    """How one replica of the webhook runs."""

    bootstrap: Cluster = setting(
        "Kafka, several with commas: missed pods are listed there.", Kafka(), default=LOOPBACK_BROKER
    )
    host: str = setting("Address on which the API server's questions are answered.", default=ALL)
    port: int = setting("Its port.", PORT, default=8443)
    kubeconfig: Path | None = setting(
        "How the API server is reached. Not given: $KUBECONFIG, else the pod's service account, else ~/.kube/config.",
        file(),
        default=None,
    )
    namespace: str = setting(
        "Its own, where its Service and Secret are.", default="", shown="that of the service account or kubeconfig"
    )
    cert_folder: Path | None = setting(
        "With tls.crt and tls.key, as cert-manager keeps them; read again as they change. Not given: it makes and "
        "rotates its own, in the Secret slacktide-webhook-tls, and tells both webhook configurations to trust them.",
        folder(),
        default=None,
    )
    client_ca: Path | None = setting(
        "Authority of the API server's client certificate: only clients with a certificate of it are answered. Not "
        "given: whoever asks.",
        file(),
        default=None,
    )
    client_names: str = setting(
        "Common names of client certificates that are answered, several with commas.",
        default="",
        shown="any that --client-ca signed",
    )
    metrics_port: int = setting("Its port; 0: any free one, said at start.", PORT, default=METRICS_PORT)


@click.command(epilog="Example: slacktide webhook --bootstrap kafka-1:9092 --metrics-host 0.0.0.0")
@configured(WebhookSettings)
def command(settings: WebhookSettings) -> None:
    """Answer the API server: new pods come out as profiles say; an agent evicts best-effort pods of its own node alone.

    Any number of replicas share one certificate. SIGTERM: answers for three more seconds, so that no question is lost.
    """
    from slacktide.agents.cluster.certificate.tls import Clients  # noqa: PLC0415
    from slacktide.agents.cluster.webhook import webhook  # noqa: PLC0415 - loads Kafka and HTTP: not for --help
    from slacktide.agents.kubernetes import access  # noqa: PLC0415

    names = frozenset(name.strip() for name in settings.client_names.split(",") if name.strip())
    if names and settings.client_ca is None:
        raise click.UsageError("--client-names needs --client-ca: without it no client is asked for a certificate")
    found = asyncio.run(access(settings.kubeconfig))
    given = webhook.WebhookSettings(
        access=found,
        namespace=settings.namespace or found.namespace,
        host=settings.host,
        port=settings.port,
        bootstrap=settings.bootstrap,
        replica=replica_name(),
        cert_folder=settings.cert_folder,
        clients=None if settings.client_ca is None else Clients(ca=settings.client_ca, names=names),
    )

    async def work(stop: asyncio.Event, health: Health) -> None:
        await webhook.run(given, stop, health, SystemClock().wall_ms)

    process.run("webhook", settings, work)
