"""One process of the command line that a test kills, stops and starts again."""

import contextlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from testbed.brokers import free_port
from testbed.hosts import HERE
from testbed.spawning import spawn

SLACKTIDE = str(Path(sys.executable).with_name("slacktide"))
ASK_S = 5.0
END_S = 15.0


class Part:
    """``slacktide COMMAND ARGUMENTS…``, with endpoints on a port of its own that outlives restarts."""

    def __init__(
        self,
        name: str,
        folder: Path,
        arguments: Sequence[str],
        *,
        program: Sequence[str] = (SLACKTIDE,),
        prefix: Sequence[str] = (),
        inside: Callable[[Callable[[], str]], str] = HERE.inside,
    ) -> None:
        """Make one that is not started yet.

        Args:
            name: for messages, and of its log's file.
            folder: for its log.
            arguments: of ``slacktide``, without those about endpoints.
            program: another one that takes the same arguments.
            prefix: a command that runs it elsewhere.
            inside: does something where its endpoints can be reached.

        """
        self.name = name
        self.log = folder / f"{name}.log"
        self.stopped = False
        """Whether SIGSTOP holds it."""
        self.starts = 0
        self._inside = inside
        self.port = free_port()
        endpoints = ["--metrics-port", str(self.port), "--log-format", "json"]
        self.program, self.arguments = tuple(program), [*arguments, *endpoints]
        """Of its next start."""
        self._prefix = tuple(prefix)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether its process lives, stopped or not."""
        return self._child is not None and self._child.poll() is None

    @property
    def process(self) -> psutil.Process:
        """The process as it is now."""
        assert self._child is not None, f"{self.name} was never started"
        return psutil.Process(self._child.pid)

    @property
    def rss_mb(self) -> float:
        """Resident memory, 10^6 bytes."""
        return float(self.process.memory_info().rss) / 1e6

    def start(self) -> None:
        """Start it, unless it runs."""
        if not self.running:
            self._child = spawn([*self._prefix, *self.program, *self.arguments], self.log)
            self.starts += 1

    def kill(self) -> None:
        """Kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int | None:
        """SIGTERM, as an operator does; killed where it does not end in time. Returns its exit code."""
        self.resume()
        self._end(signal.SIGTERM)
        return None if self._child is None else self._child.returncode

    def pause(self) -> None:
        """SIGSTOP."""
        if self.running:
            self.process.suspend()
            self.stopped = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.running and self.stopped:
            self.process.resume()
        self.stopped = False

    def _end(self, how: signal.Signals) -> None:
        child, self.stopped = self._child, False
        if child is None or child.poll() is not None:
            return
        child.send_signal(how)
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def ask(self, path: str) -> str:
        """One of its endpoints; what it refuses with, if it does.

        Raises:
            OSError: nobody answers.

        """
        return self._inside(lambda: _ask(f"http://127.0.0.1:{self.port}/{path}"))

    def metric(self, name: str) -> float:
        """The sum of one metric over its labels; 0.0 where there is none, or nobody answers."""
        with contextlib.suppress(OSError):
            lines = [line for line in self.ask("metrics").splitlines() if line.partition("{")[0].split(" ")[0] == name]
            return sum(float(line.rpartition(" ")[2]) for line in lines)
        return 0.0

    def wait_ready(self, within_s: float = 120.0) -> None:
        """Wait until ``/ready`` is content.

        Raises:
            AssertionError: it is not, in time; with why, and the end of its log.

        """
        until_s, why = time.monotonic() + within_s, "never asked"
        while why != "ready":
            assert self.running, f"{self.name} ended:\n{self.last_words()}"
            assert time.monotonic() < until_s, f"{self.name}: {why}\n{self.last_words()}"
            try:
                why = "ready" if self.ask("ready").startswith("200") else "not ready"
            except OSError as error:
                why = str(error)
            time.sleep(0.05)

    def wait(self, true: Callable[[], object], what: str, within_s: float = 60.0) -> None:
        """Wait until something is true.

        Raises:
            AssertionError: it is not, in time, or the process ends before; with the end of its log.

        """
        until_s = time.monotonic() + within_s
        while not true():
            assert self.running, f"{what}: {self.name} ended:\n{self.last_words()}"
            assert time.monotonic() < until_s, f"{what}: not within {within_s:g} s:\n{self.last_words()}"
            time.sleep(0.05)

    @property
    def log_text(self) -> str:
        """All of its log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def last_words(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log_text.splitlines()[-lines:])


@contextlib.contextmanager
def running_part(folder: Path, *arguments: str, prefix: Sequence[str] = ()) -> Iterator[Part]:
    """``slacktide ARGUMENTS…``, with its log in the folder; stopped at the end."""
    part = Part(arguments[0], folder, arguments, prefix=prefix)
    part.start()
    try:
        yield part
    finally:
        part.stop()


def _ask(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=ASK_S) as answer:
            text: str = answer.read().decode()
    except urllib.error.HTTPError as error:
        with contextlib.closing(error):
            return f"{error.code} {error.read().decode()}"
    else:
        return text if url.endswith("metrics") else f"200 {text}"
