"""Supervises child processes: starts them, waits for readiness, restarts them."""

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

from slacktide.agents.clock import SystemClock
from slacktide.deploy.runtime import child_process
from slacktide.deploy.runtime.endpoints import PROCESS
from slacktide.schemas.backoff import Backoff
from slacktide.schemas.errors import SlacktideError
from slacktide.streams.tasks import given_up

log = logging.getLogger(__name__)

BACKOFF_S, BACKOFF_S_MAX = 0.2, 5.0
STEADY_S = 30.0
"""A child that ran this long is restarted without delay."""
ATTEMPTS = 5
"""Limit for exits before it was ever ready."""
POLL_S = 0.05
PROGRAM = "slacktide.deploy.cli.main"
"""The module of the command line, by name: this room does not load it."""
ANSWER_S = 1.0


class PartError(SlacktideError):
    """A child does not start."""


class Part:
    """A child process with endpoints."""

    def __init__(self, name: str, arguments: Sequence[str], url: str, *, asked: str = "/ready") -> None:
        self.name = name
        self.url = url
        """The part's endpoints. The path ``asked`` responds 200 once the part is ready."""
        self._asked = asked
        self.ready = asyncio.Event()
        """Set when it was ready once."""
        # -P: modules in the current folder must not shadow ours
        self._command = [sys.executable, "-P", "-m", PROGRAM, *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._clock = SystemClock()

    async def keep(self) -> None:
        """Run it until cancelled. Raises PartError if it repeatedly ends before it was ever ready."""
        backoff, attempts = Backoff(BACKOFF_S, BACKOFF_S_MAX), 0
        while True:
            started_ns = self._clock.mono_ns()
            # It may stop gracefully if this process is killed: SIGTERM, not SIGKILL.
            self._process = child_process.popen(self._command, death=signal.SIGTERM)
            watching = asyncio.create_task(self._watch(started_ns, self._process.pid))
            code = await child_process.ended(self._process)
            given_up(watching)
            attempts += 1
            if not self.ready.is_set() and attempts >= ATTEMPTS:
                raise PartError(f"{self.name} ended {attempts} times before it was ready; the last time: {how(code)}")
            if self._ran_s(started_ns) > STEADY_S:
                backoff.reset()
            pause_s = backoff.next_s()
            log.warning("%s ended (%s); restarting it in %.1f s", self.name, how(code), pause_s)
            await asyncio.sleep(pause_s)

    async def stop(self, within_s: float) -> None:
        """Stop it gracefully, or kill it after ``within_s``."""
        if self._process is not None and not await child_process.end(self._process, within_s):
            log.warning("%s did not stop within %g s: killed", self.name, within_s)

    async def _watch(self, started_ns: int, pid: int) -> None:
        again = self.ready.is_set()
        while (why := await why_not_ready(self.url, self._asked, pid)) != "":
            log.debug("%s: %s", self.name, why)
            await asyncio.sleep(POLL_S)
        self.ready.set()
        if again:
            log.info("%s is ready again after %.1f s", self.name, self._ran_s(started_ns))

    def _ran_s(self, started_ns: int) -> float:
        return (self._clock.mono_ns() - started_ns) / 1e9


async def why_not_ready(url: str, path: str, pid: int) -> str:
    """Query a process: "" if it is ready, else its response, or that another process or none responds."""
    parts = urlsplit(url)
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
                head, _, body = (await reader.read()).decode(errors="replace").partition("\r\n\r\n")
            finally:
                writer.close()
        if f"{PROCESS}: {pid}" not in head.splitlines():
            return "another process uses its port"
        return "" if head.split(maxsplit=2)[1:2] == ["200"] else body.strip() or "no answer"
    return "no answer"


def how(code: int) -> str:
    """Describe how a process ended, by Popen's exit code."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
