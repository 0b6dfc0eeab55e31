"""Processes of the command line under measurement: CPU time, memory, readiness."""

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

from bench.rig import CannotRunError, Rig
from slacktide.deploy.runtime import child_process
from testbed.brokers import free_port

SLACKTIDE = str(Path(sys.executable).with_name("slacktide"))
MAIN = "slacktide.deploy.cli.main"
STOP_S = 12.0
POLL_S = 0.01
PATHS = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests")]
"""Where modules of the bench and of the test bed lie."""


def environment(*first: str) -> dict[str, str]:
    """For a child that is a module of the bench; ``first``: where else modules lie, before all others."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*first, *PATHS, os.environ.get("PYTHONPATH", "")])}


class Running:
    """A child with its output in a file."""

    def __init__(self, rig: Rig, name: str, command: list[str], env: dict[str, str] | None = None) -> None:
        self.name = name
        self._rig = rig
        self.started_s = time.monotonic()
        self._log = rig.folder / f"{name}-{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self._child = child_process.popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
        self._process = psutil.Process(self._child.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self._child.terminate()
        elif self._child.returncode:
            self._rig.say(f"{self.name} ended by itself, exit code {self._child.returncode}:\n{self.last_words()}")
        try:
            self._child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    @property
    def process(self) -> psutil.Process:
        """For figures that look closer."""
        return self._process

    def check(self) -> None:
        """Raise where it has ended.

        Raises:
            CannotRunError: with the end of its output.

        """
        if self._child.poll() is not None:
            raise CannotRunError(f"{self.name} ended with exit code {self._child.returncode}:\n{self.last_words()}")

    def wait_end(self, within_s: float) -> int:
        """Wait until it ends by itself; its exit code.

        Raises:
            CannotRunError: it does not, in time.

        """
        try:
            return self._child.wait(within_s)
        except subprocess.TimeoutExpired:
            raise CannotRunError(f"{self.name} still runs after {within_s:g} s:\n{self.last_words()}") from None

    def said(self) -> str:
        """All of its output so far."""
        return self._log.read_text(errors="replace")

    def last_words(self) -> str:
        """The end of its output."""
        return "\n".join(self.said().splitlines()[-15:])

    def cpu_s(self) -> float:
        """User and system time so far, all threads."""
        times = self._process.cpu_times()
        return times.user + times.system

    def rss_mb(self) -> float:
        """Resident memory now, 10^6 bytes."""
        return self._process.memory_info().rss / 1e6

    def peak_rss_mb(self) -> float:
        """The most that was ever resident, 10^6 bytes."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))


class Slacktide(Running):
    """A part with endpoints; ``checkout``: of another version, whose folder this is."""

    def __init__(self, rig: Rig, command: str, *arguments: str, checkout: Path | None = None) -> None:
        self._port = free_port()
        metrics = ["--metrics-port", str(self._port), "--log-format", "json"]
        program, env = [SLACKTIDE], None
        if checkout is not None:
            program, env = [sys.executable, "-m", MAIN], environment(str(checkout / ".src"))
        super().__init__(rig, command, [*program, command, *arguments, *metrics], env)

    def warnings(self) -> list[str]:
        """Its log lines of level warning and above, so far."""
        return [line for line in self.said().splitlines() if '"level":"' in line and '"level":"info"' not in line]

    def metric(self, name: str) -> float:
        """The sum of one metric over its labels."""
        return self.labelled(name)

    def _metrics(self) -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as answer:
            return answer.read().decode().splitlines()

    def labelled(self, name: str, **labels: str) -> float:
        """The sum of one metric over what else labels it."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = [line for line in self._metrics() if line.partition("{")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(one in line for one in wanted))

    def wait_ready(self, within_s: float = 60.0) -> None:
        """Wait until it is ready.

        Raises:
            CannotRunError: it is not, in time.

        """
        while why := ready(self._port):
            self.check()
            if time.monotonic() - self.started_s > within_s:
                raise CannotRunError(f"{self.name} not ready within {within_s:g} s: {why}\n{self.last_words()}")
            time.sleep(POLL_S)


def ready(port: int) -> str:
    """Ask a process once whether it is ready; "" or why not."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1):
            return ""
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            return error.read().decode().strip()
    except OSError as error:
        return str(error)
