"""Runs the console of the one-machine stack. It is optional: the stack neither waits for it nor ends with it."""

import asyncio
import logging
from importlib.util import find_spec
from pathlib import Path

from slacktide.agents.listening import listening
from slacktide.deploy.runtime.broker import HOST, free_port
from slacktide.deploy.runtime.supervisor import Part, PartError
from slacktide.schemas.connection import Cluster
from slacktide.streams.tasks import given_up

log = logging.getLogger(__name__)

PORT = 9470
LACKING = "the console is not installed: pip install 'slacktide[console]'"


def is_installed() -> bool:
    """Return whether the extra slacktide[console] is installed."""
    return find_spec("aiohttp") is not None


def usual_port() -> int:
    """Return the console's default port, or a free one if that is in use."""
    try:
        listening(HOST, PORT).close()
    except OSError:
        return free_port()
    return PORT


def console_arguments(bootstrap: Cluster, store: Path, port: int) -> list[str]:
    """Return the command line of a console on loopback."""
    security = ["--kafka-config", bootstrap.security.file] if bootstrap.security.file else []
    listen = ["--listen", f"{HOST}:{port}", "--store", str(store)]
    return ["console", "--bootstrap", str(bootstrap), *security, *listen]


def url_of(port: int) -> str:
    """Return the console's URL."""
    return f"http://{HOST}:{port}"


def console_part(bootstrap: Cluster, store: Path, *more: str) -> Part:
    """Return the console as a supervised child process; ``more``: further options."""
    port = usual_port()
    return Part("console", [*console_arguments(bootstrap, store, port), *more], url_of(port), asked="/live")


async def keep(console: Part) -> None:
    """Run the console until cancelled, and log its URL. If it does not start, continue without it."""

    async def announce() -> None:
        await console.ready.wait()
        log.info("console: %s", console.url)

    announcing = asyncio.create_task(announce())
    try:
        await console.keep()
    except PartError as exc:
        log.warning("%s; the other parts run without it", exc)
        await asyncio.Event().wait()
    finally:
        given_up(announcing)
