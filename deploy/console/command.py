"""``slacktide console``: the web console for the last week."""
# ruff: noqa: RUF009 - setting() makes a field

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from slacktide.deploy.runtime import process
from slacktide.deploy.runtime.console_process import PORT
from slacktide.deploy.runtime.process import configure
from slacktide.deploy.runtime.settings import (
    LOOPBACK_BROKER,
    HostPort,
    Kafka,
    configured,
    envvar,
    file,
    folder,
    setting,
    state_folder,
)
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health

log = logging.getLogger(__name__)

TOKEN = envvar("--console-token")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings(process.LogSettings):
    """Settings of the console."""

    bootstrap: Cluster = setting("Addresses of Kafka brokers, separated by commas.", Kafka(), default=LOOPBACK_BROKER)
    listen: str = setting(
        "HOST:PORT of the console's pages and of /live. An address other than loopback requires a token.",
        HostPort(),
        default=f"127.0.0.1:{PORT}",
    )
    store: Path = setting(
        "Folder of the history file.",
        folder(exists=False),
        default=lambda: state_folder() / "console",
        shown="/var/lib/slacktide/console for root, else ~/.local/state/slacktide/console",
    )
    store_gib: int = setting(
        "Largest size of the history in GiB. The oldest data is dropped first. 1,000 nodes need 16 for a week.",
        click.IntRange(1),
        default=4,
    )
    token_file: Path | None = setting(
        "File with the token that each request must contain. Reread when it changes. Default: the token in "
        f"${TOKEN}, else no token.",
        file(),
        default=None,
    )
    cert_folder: Path | None = setting(
        "Folder with tls.crt and tls.key, such as cert-manager's. Reread when they change. Without it, no TLS.",
        folder(),
        default=None,
    )


@click.command(epilog="Example: slacktide console --bootstrap kafka-1:9092 --listen 127.0.0.1:9470")
@configured(ConsoleSettings)
def command(settings: ConsoleSettings) -> None:
    """Serve the console until stopped: nodes, pods, records and policy, live or at a moment of the last week.

    It follows the topics, keeps a history in one file of bounded size, and only reads from Kafka. With a token, a
    browser asks for a user name, which may be any, and a password, which is the token. /metrics needs the token, too.
    """
    from slacktide.deploy.console.guarding import is_loopback  # noqa: PLC0415 - loads HTTP: not for --help
    from slacktide.deploy.console.run import run  # noqa: PLC0415
    from slacktide.deploy.console.server import Listen  # noqa: PLC0415

    host, _, port = settings.listen.rpartition(":")
    token = _token(settings.token_file)
    if not token and not is_loopback(host):
        raise click.UsageError(
            f"--listen {settings.listen} is not a loopback address: give a token with --token-file or ${TOKEN}"
        )
    configure("console", settings.log_level, settings.log_format)
    if settings.cert_folder is None and not is_loopback(host):
        log.warning("the token is sent over the network unencrypted: give --cert-folder, or use a proxy with TLS")
    listen = Listen(host=host.strip("[]"), port=int(port), token=token, cert_folder=settings.cert_folder)

    async def work(stop: asyncio.Event) -> None:
        await run(settings.bootstrap, settings.store, listen, stop, Health(), size_bytes_max=settings.store_gib << 30)

    process.until_stopped(work)


def _token(path: Path | None) -> Callable[[], str] | None:
    """Return a function for the current token; None: there is none. Raises click.UsageError: it cannot be used."""
    from slacktide.deploy.console.guarding import TokenError, token_file, usable  # noqa: PLC0415

    try:
        if path is not None:
            return token_file(path)
        token = os.environ.get(TOKEN, "")
        return (lambda: token) if token and usable(token) else None
    except TokenError as exc:
        raise click.UsageError(str(exc)) from exc
