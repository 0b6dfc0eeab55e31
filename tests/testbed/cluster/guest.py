"""A kernel in QEMU with a network: scripts run in it, and programs stay in it, on this machine's files."""

import contextlib
import itertools
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from testbed.brokers import free_port
from testbed.reaching import needs

from .programs import Program

RUNNER = Path(__file__).parents[2] / "kernel/cgroup2-qemu"
SHELL_PORT = 9000
ADDRESS, OUTSIDE = "10.0.2.15", "10.0.2.2"
LOGS = "/run/log"
BOOT_S, SCRIPT_S = 180.0, 120.0
# Each connection gets a shell. Each port leads to the same one outside, so that addresses are the same on both sides.
# There is more memory than processor: Go's programs collect garbage less often.
INIT = f"""
export GOGC=400
ip addr add {ADDRESS}/24 dev eth0 && ip link set eth0 up && ip route add default via {OUTSIDE} && mkdir {LOGS} || exit
for port; do busybox nc -ll -p $port -e busybox nc {OUTSIDE} $port & done
exec busybox nc -ll -p {SHELL_PORT} -e sh
"""


class ScriptError(Exception):
    """A script that failed in the guest: its exit status and what it printed."""


@needs("guestnode", "zonednode", "qemu")
class Guest:
    """One kernel. Its files are this machine's, ``/run`` excepted; write a file before the guest first reads it."""

    def __init__(self, folder: Path, zones: int = 1, disk: Path | None = None) -> None:
        """``zones``: of NUMA; two have one CPU each. ``disk``: a file that is its ``/dev/vda``."""
        self._zones, self._disk = zones, disk
        self._kernel = Program("guest", folder / "guest.log")
        self._port = free_port()
        self._ports: Sequence[int] = ()

    def start(self, ports: Sequence[int]) -> None:
        """Boot it, and do not wait; these ports on its loopback are this machine's."""
        self._ports = ports
        settings = [f"CGROUP2_QEMU_FORWARD={self._port}:{SHELL_PORT}", f"CGROUP2_QEMU_ZONES={self._zones}"]
        settings += [f"CGROUP2_QEMU_DISK={self._disk}"] if self._disk else []
        inside = ["sh", "-c", INIT, "init", *map(str, ports)]
        self._kernel.spawn(["env", *settings, sys.executable, str(RUNNER), *inside])

    def await_boot(self) -> None:
        """Return when it runs scripts. QEMU has stood still once in some hundred runs: then it is booted once more."""
        patience_s = itertools.count(5, 5)
        try:
            self._kernel.await_ready(lambda: self._answers(next(patience_s)), BOOT_S)
        except RuntimeError:
            self.start(self._ports)
            self._kernel.await_ready(lambda: self._answers(next(patience_s)), BOOT_S)

    def _answers(self, within_s: float) -> bool:
        """Each time with more patience: QEMU takes a connection before the guest does, and a busy one is slow to."""
        with contextlib.suppress(OSError, ScriptError):
            return self.sh("echo up", within_s=within_s) == "up\n"
        return False

    def stop(self) -> None:
        """End it at once: nothing in it outlives it."""
        self._kernel.stop(signal.SIGTERM)

    def sh(self, script: str, within_s: float = SCRIPT_S) -> str:
        """Run a script, and return what it printed."""
        sent = f'(\n{script}\n) </dev/null 2>&1\necho " $?"\nexit\n'
        with socket.create_connection(("127.0.0.1", self._port), timeout=within_s) as line:
            line.sendall(sent.encode())
            printed = b""
            while chunk := line.recv(65536):
                printed += chunk
        text, _, status = printed.decode(errors="replace").rpartition(" ")
        if status.strip() != "0":
            raise ScriptError(f"exit status {status.strip() or 'unknown'}: {script}\n{text}")
        return text

    def read(self, file: str | os.PathLike[str]) -> str:
        return self.sh(f"cat {shlex.quote(str(file))}").strip()


class GuestProgram:
    def __init__(self, guest: Guest, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._guest, self._command = guest, shlex.join(command)
        self._log = f"{LOGS}/{name}.log"
        self._pid = ""

    def start(self) -> None:
        started = f"setsid {self._command} </dev/null >>{self._log} 2>&1 & echo $!"
        self._pid = self._guest.sh(started).strip()

    @property
    def running(self) -> bool:
        return bool(self._guest.sh(f"[ ! -d /proc/{self._pid} ] || echo runs"))

    def stop(self, within_s: float = 60.0) -> None:
        until_s = time.monotonic() + within_s
        self._guest.sh(f"kill {self._pid}")
        while self.running:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self.name} did not end within {within_s:g} s:\n{self.log_end()}")
            time.sleep(0.2)

    def log_end(self, lines: int = 30) -> str:
        return self._guest.sh(f"tail -n {lines} {self._log}")
