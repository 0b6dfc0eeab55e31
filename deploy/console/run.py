"""Runs the console's process: follower, history and server."""

import asyncio
import fcntl
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from slacktide.agents.clock import SystemClock
from slacktide.deploy.console.history.file import StoreError
from slacktide.deploy.console.history.follower import Follower, LogRecords
from slacktide.deploy.console.history.queries import History
from slacktide.deploy.console.history.store import Store
from slacktide.deploy.console.server import Listen, serving
from slacktide.schemas.connection import Cluster
from slacktide.schemas.health import Health
from slacktide.streams.tasks import until_one_ends

log = logging.getLogger(__name__)
FILE, LOCK = "history.sqlite", "lock"


async def run(
    bootstrap: Cluster, folder: Path, listen: Listen, stop: asyncio.Event, health: Health, *, size_bytes_max: int
) -> None:
    """Follow and serve until ``stop`` is set, then store what is recorded. Without Kafka, pages show the history.

    Raises:
        ServerError: the server cannot listen on the address.
        StoreError: the history cannot be opened, or another console writes to it.
        CertificateError: the certificate is invalid.
    """
    with _lock(folder), closing(Store(folder / FILE, size_bytes_max=size_bytes_max)) as store:
        records = LogRecords(bootstrap)
        try:
            follower = Follower(bootstrap, store, SystemClock())
            history = History(
                store.path, lambda: follower.recorder, records, report=store.report, size_bytes_max=store.size_bytes_max
            )
            async with serving(history, listen, health, lambda: follower.trouble) as url:
                log.info("serving the console", extra={"url": url})
                await until_one_ends(follower.run(), stop.wait())  # the follower only ends by an error
        finally:
            await records.close()


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Lock the folder for this console. Raises StoreError if another console holds the lock, or it cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
    except BlockingIOError as exc:
        raise StoreError(
            f"{folder}: another console uses this folder; stop it, or give another folder with --store"
        ) from exc
