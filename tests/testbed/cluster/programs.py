"""Kubernetes' own programs: where they lie, and one of them as a process."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from testbed.spawning import spawn

START_S = 60.0


class Program:
    """One process and its output; ended by pid, and by the kernel should its parent vanish."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id, for tests that look at it."""
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    def spawn(self, command: list[str]) -> None:
        """Start it, and do not wait."""
        assert self._process is None, f"{self.name} is running already"
        self._process = spawn(command, self.log)

    def await_ready(self, ready: Callable[[], bool], within_s: float = START_S) -> None:
        """Return when it is ready.

        Raises:
            RuntimeError: it ended, or was not ready in time; with the end of its log.

        """
        until_s = time.monotonic() + within_s
        while not ready():
            if not self.running or time.monotonic() > until_s:
                told = self.log_end()
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"{self.name} did not start:\n{told}")
            time.sleep(0.05)

    def start(self, command: list[str], ready: Callable[[], bool]) -> None:
        """Start it, and return when it is ready."""
        self.spawn(command)
        self.await_ready(ready)

    def log_end(self) -> str:
        """The last lines of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def stop(self, how: signal.Signals = signal.SIGTERM, within_s: float = 10.0) -> None:
        """End it; no error where it is stopped already."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
