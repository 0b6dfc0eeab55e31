"""Programs of others as processes, and whether one answers."""

import contextlib
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from testbed.spawning import spawn

START_S, KILLED_S = 60.0, 10.0


class Program:
    """One process and its output; ended by pid, and by the kernel should its parent vanish."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self, command: list[str]) -> None:
        assert self._process is None, f"{self.name} is running already"
        self._process = spawn(command, self.log)

    def await_ready(self, ready: Callable[[], bool], within_s: float = START_S) -> None:
        until_s = time.monotonic() + within_s
        while not ready():
            if not self.running or time.monotonic() > until_s:
                told = self.log_end()
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"{self.name} did not start:\n{told}")
            time.sleep(0.05)

    def start(self, command: list[str], ready: Callable[[], bool], within_s: float = START_S) -> None:
        self.spawn(command)
        self.await_ready(ready, within_s)

    def log_end(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])

    def stop(self, how: signal.Signals = signal.SIGTERM, within_s: float = KILLED_S) -> None:
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


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def answers(url: str, trust: ssl.SSLContext | None = None, fine: int = 200) -> bool:
    """Whether it says 200, or what else is fine."""
    try:
        with urllib.request.urlopen(url, timeout=5, context=trust) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code == fine
    except OSError:
        return False
