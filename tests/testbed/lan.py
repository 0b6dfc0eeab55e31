"""A network of the test's own: hosts in network namespaces around a router, and faults between any two of them.

Everything is in namespaces whose names carry this process's id. What a killed run left, the next one removes.
Linux here has no netem: partitions and losses are rules of iptables, delay is a TUN device and a thread (``delay``).
"""

import concurrent.futures
import contextlib
import ctypes
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from testbed.delay import Delay
from testbed.hosts import Host
from testbed.reaching import needs

NAMED = "slacktide-lan"
NAMESPACES = Path("/run/netns")
CLONE_NEWNET = 0x40000000
TUN, TABLE, BACK_FIRST, DELAYED_NEXT = "delay0", "77", "10", "20"
_libc = ctypes.CDLL(None, use_errno=True)


@needs("netns")
class Lan:
    def __init__(self) -> None:
        self._router = f"{NAMED}-{os.getpid()}-router"
        self.hosts: dict[str, Host] = {}
        """Those who joined, by name."""
        self._stack = contextlib.ExitStack()
        self._delay: Delay | None = None

    def __enter__(self) -> Self:
        sweep()
        self._add(self._router)
        self._in_router("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()
        self._stack.close()

    def join(self, name: str) -> Host:
        number, namespace = len(self.hosts) + 1, f"{NAMED}-{os.getpid()}-{name}"
        gateway, address = f"10.77.{number}.1", f"10.77.{number}.2"
        self._add(namespace)
        run("ip", "link", "add", f"to{number}", "netns", self._router,
            "type", "veth", "peer", "name", "eth0", "netns", namespace)  # fmt: skip
        run("ip", "-n", self._router, "addr", "add", f"{gateway}/24", "dev", f"to{number}")
        run("ip", "-n", self._router, "link", "set", f"to{number}", "up")
        run("ip", "-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", namespace, "link", "set", device, "up")
        run("ip", "-n", namespace, "route", "add", "default", "via", gateway)
        self.hosts[name] = Host(address, ("ip", "netns", "exec", namespace), self._worker_in(namespace))
        return self.hosts[name]

    def cut(self, one: str, other: str) -> None:
        self.lose(one, other, 1.0)
        self.lose(other, one, 1.0)

    def lose(self, sender: str, receiver: str, part: float) -> None:
        chance = [] if part >= 1 else ["-m", "statistic", "--mode", "random", "--probability", str(part)]
        self._in_router("iptables", "-w", "-A", "FORWARD", *self._between(sender, receiver), *chance, "-j", "DROP")

    def slow(self, one: str, other: str, delay_ms: int) -> None:
        if self._delay is None:
            self._delay = self._inside(self._router, lambda: Delay(TUN))
            run("ip", "-n", self._router, "link", "set", TUN, "up")
            run("ip", "-n", self._router, "route", "add", "default", "dev", TUN, "table", TABLE)
            run("ip", "-n", self._router, "rule", "add", "iif", TUN, "lookup", "main", "pref", BACK_FIRST)
            self._in_router("sh", "-c", "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done")
        self._delay.delay_s = delay_ms / 1_000
        for sender, receiver in ((one, other), (other, one)):
            way = ["from", self.hosts[sender].address, "to", self.hosts[receiver].address]
            run("ip", "-n", self._router, "rule", "add", *way, "lookup", TABLE, "pref", DELAYED_NEXT)

    def heal(self) -> None:
        """The network is whole again; what the delay holds still arrives."""
        self._in_router("iptables", "-w", "-F", "FORWARD")
        while run("ip", "-n", self._router, "rule", "del", "pref", DELAYED_NEXT, check=False) == 0:
            pass

    def _between(self, sender: str, receiver: str) -> list[str]:
        return ["-s", self.hosts[sender].address, "-d", self.hosts[receiver].address]

    def _in_router(self, *command: str) -> None:
        run("ip", "netns", "exec", self._router, *command)

    def _add(self, namespace: str) -> None:
        run("ip", "netns", "add", namespace)
        self._stack.callback(run, "ip", "netns", "del", namespace, check=False)

    def _inside(self, namespace: str, work: Callable[[], Any]) -> Any:
        return self._worker_in(namespace)(work)

    def _worker_in(self, namespace: str) -> Callable[[Callable[[], Any]], Any]:
        """A thread in the namespace that does what it is given; threads that it starts are there, too."""
        thread = concurrent.futures.ThreadPoolExecutor(1, initializer=enter, initargs=(namespace,))
        self._stack.callback(thread.shutdown)
        return lambda work: thread.submit(work).result()


def enter(namespace: str) -> None:
    """Move this thread alone into a namespace."""
    with (NAMESPACES / namespace).open() as opened:
        if _libc.setns(opened.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


def run(*command: str, check: bool = True) -> int:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.returncode


def sweep() -> None:
    for left in NAMESPACES.glob(f"{NAMED}-*") if NAMESPACES.is_dir() else ():
        pid = left.name.removeprefix(f"{NAMED}-").partition("-")[0]
        if not Path("/proc", pid).exists():
            run("ip", "netns", "del", left.name, check=False)
