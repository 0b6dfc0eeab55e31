"""Leaks one after the other, inside the guest: ``python -m bench.leak_guest TASK``, JSON in and out.

It imports little: the guest translates each instruction.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slacktide.deploy.demo.groups import KUBEPODS, Groups, PodGroup

MOUNT, DISK = Path("/sys/fs/cgroup"), "/dev/vda"
TIER = MOUNT / KUBEPODS / "besteffort"
MIB = 1 << 20
LOOK_S, SETTLE_S, AFTER_S, READY_S = 0.2, 3.0, 2.0, 120.0
RECLAIMED = re.compile(r"^slacktide_agent_reclaimed_bytes_total\{[^}]*\} (\S+)$", re.MULTILINE)
JOIN = "import json, select, sys, time\nopen(sys.argv[1], 'w').write('0')\nmib = int(sys.argv[2])\n"
SERVICE = """
held, page, took, at = bytearray(mib << 20), 4096, [], 0
held[::page] = b"x" * (len(held) // page)
print(flush=True)
part = len(held) // 50 // page * page
while True:
    begin = time.monotonic()
    held[at:at + part:page] = b"x" * (part // page)
    took.append(1000 * (time.monotonic() - begin))
    at = at + part if at + 2 * part <= len(held) else 0
    if select.select([sys.stdin], [], [], 0.02)[0] and sys.stdin.readline():
        took.sort()
        print(json.dumps([took[len(took) // 2], took[len(took) * 99 // 100], took[-1]]), flush=True)
        took = []
"""
"""Touches all of its memory once a second; a line for a line: median, p99 and most of the touches since, in ms."""
CACHE = """
held = bytearray(mib << 20)
held[::4096] = b"x" * (len(held) // 4096)
with open(sys.argv[3], "rb", buffering=0) as file:
    for _ in range(int(sys.argv[4])): file.read(1 << 20)
    print(flush=True)
    while True:
        time.sleep(0.5)
        file.read(1 << 20)
"""
"""Holds memory that it has touched once, and reads on in a file."""
LEAK = """
rate_mib_s, held, due = float(sys.argv[3]), [], time.monotonic()
print(flush=True)
while not mib or len(held) < mib:
    held.append(bytearray(b"x") * (1 << 20))
    due += 1 / rate_mib_s
    time.sleep(max(0.0, due - time.monotonic()))
time.sleep(3)
"""
"""Takes more and more; up to its peak, which it holds for a while, or without end."""


class Pods:
    """A service and a best-effort pod with caches and idle memory, beside which others leak in turn."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._task, self._groups = task, Groups(MOUNT)
        service = PodGroup(uid=task["service"], tier="burstable", request_milli=task["capacity_milli"] // 2)
        batch = {name: PodGroup(uid=uid, tier="besteffort") for name, uid in task["best_effort"].items()}
        self._pods = {"service": service, **batch}
        self._groups.make(list(self._pods.values()), task["capacity_milli"])
        for name, pod in self._pods.items():  # a kubelet lets no such pod swap, and writes 0 to its containers
            swap_max = "max" if task["swap_mib"] and name != "service" else "0"
            (MOUNT / pod.path / "memory.swap.max").write_text(swap_max)
        self._started: dict[str, subprocess.Popen[str]] = {}
        self._silent: list[subprocess.Popen[str]] = []
        """Those that have not said yet that they hold their memory."""
        self._held: dict[str, int] = {}

    def run(self) -> Iterator[dict[str, Any]]:
        """What came of each leak."""
        service = self._start("service", SERVICE, self._task["service_mib"])
        for leak in self._task["leaks"]:
            if all(process.poll() is not None for name, process in self._started.items() if name != "service"):
                self._start(
                    f"cache-{leak['kind']}", CACHE, *(self._task[name] for name in ("cache_mib", "file", "file_mib"))
                )
            while self._silent:
                _read(self._silent.pop())
            time.sleep(SETTLE_S)
            with self._high() if self._task["high_pct"] else contextlib.nullcontext():
                yield self._leaked(service, **leak)

    def _leaked(self, service: subprocess.Popen[str], kind: str, mib: int, seconds_max: float) -> dict[str, Any]:
        _ask(service)
        others, before, at_s = dict(self._started), self._counted(), time.monotonic()
        leak = self._start(f"leak-{kind}", LEAK, mib, self._task["rate_mib_s"])
        peak_pct, evicted = self._watched(leak, at_s + seconds_max)
        seconds, finished = time.monotonic() - at_s, leak.poll() == 0
        time.sleep(AFTER_S)
        counted = {name: now - before[name] for name, now in self._counted().items()}
        p50_ms, p99_ms, most_ms = _ask(service)
        leak.kill()
        leak.wait()
        self._silent.clear()
        self._started = {name: process for name, process in others.items() if process.poll() is None}
        return {
            "kind": kind, "seconds": seconds, "finished": finished, "evicted": sorted(evicted), "peak_pct": peak_pct,
            "evicted_bytes": sum(self._held[name] for name in evicted), "touch_p50_ms": p50_ms,
            "touch_p99_ms": p99_ms, "touch_max_ms": most_ms, **counted,
        }  # fmt: skip

    def _start(self, name: str, program: str, *arguments: object) -> subprocess.Popen[str]:
        (join,) = self._groups.join_files(self._pods[name])
        command = [sys.executable, "-S", "-c", JOIN + program, str(join), *map(str, arguments)]
        self._started[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._silent.append(self._started[name])
        return self._started[name]

    @contextmanager
    def _high(self) -> Iterator[None]:
        """Limit best-effort pods to what keeps the node's use below this; their page cache counts, too."""
        use = int(_fields("/proc/meminfo")["MemTotal"]) * self._task["high_pct"] // 100 * 1024
        others = _used_bytes() - int(_fields(TIER / "memory.stat")["anon"])
        (TIER / "memory.high").write_text(str(use - others))
        try:
            yield
        finally:
            (TIER / "memory.high").write_text("max")

    def _watched(self, leak: subprocess.Popen[str], until_s: float) -> tuple[float, set[str]]:
        """Return the most that was used, and who was ended by somebody else."""
        most, evicted, total = 0, set[str](), int(_fields("/proc/meminfo")["MemTotal"]) * 1024
        while time.monotonic() < until_s and leak.poll() is None:
            most = max(most, _used_bytes())
            for role, process in self._started.items():
                if process.poll() is None:
                    with contextlib.suppress(OSError):
                        held = int((MOUNT / self._pods[role].path / "memory.current").read_text())
                        self._held[role] = max(held, self._held.get(role, 0))
            time.sleep(LOOK_S)
        for role, process in self._started.items():
            if (process.poll() or 0) < 0:
                evicted.add(role)
        return 100 * most / total, evicted

    def _counted(self) -> dict[str, int]:
        vm = _fields("/proc/vmstat")
        service, told = MOUNT / self._pods["service"].path, {}
        for name, file in {
            "ls_mem": service / "memory.pressure", "ls_io": service / "io.pressure", "be_mem": TIER / "memory.pressure",
            "node_io": Path("/proc/pressure/io"),
        }.items():  # fmt: skip
            some, full = re.findall(r"total=(\d+)", file.read_text())
            told |= {f"{name}_some_us": int(some), f"{name}_full_us": int(full)}
        with urllib.request.urlopen(f"http://127.0.0.1:{self._task['metrics_port']}/metrics", timeout=60) as answer:
            told["reclaimed_bytes"] = int(sum(map(float, RECLAIMED.findall(answer.read().decode()))))
        swapped = {f"swapped_{way}_bytes": int(vm[f"pswp{way}"]) * os.sysconf("SC_PAGE_SIZE") for way in ("in", "out")}
        return told | swapped | {"oom_kills": int(vm["oom_kill"])}

    def close(self) -> None:
        """End all, and leave empty groups."""
        for process in self._started.values():
            process.kill()
            process.wait()


def _read(process: subprocess.Popen[str]) -> str:
    """Its next line."""
    if not select.select([process.stdout], [], [], READY_S)[0] or not (line := process.stdout.readline()):
        raise RuntimeError(f"{process.args} says nothing: {process.poll()}")
    return line


def _ask(service: subprocess.Popen[str]) -> list[float]:
    service.stdin.write("\n")
    service.stdin.flush()
    return json.loads(_read(service))


def _fields(file: str | Path) -> dict[str, str]:
    lines = (line.replace(":", " ").split() for line in Path(file).read_text().splitlines())
    return {words[0]: words[1] for words in lines}


def _used_bytes() -> int:
    """As the agent has it."""
    found = _fields("/proc/meminfo")
    return (int(found["MemTotal"]) - int(found["MemAvailable"])) * 1024


@contextmanager
def _swap(mib: int) -> Iterator[None]:
    if mib:
        subprocess.run(["mkswap", DISK, str(mib * 1024)], check=True, capture_output=True)
        subprocess.run(["swapon", DISK], check=True)
    try:
        yield
    finally:
        if mib:
            subprocess.run(["swapoff", DISK], check=True)


def main(task: dict[str, Any]) -> None:
    """Run leaks; without pods make the groups that an agent needs to start."""
    if "service" not in task:
        Groups(MOUNT).make([], task["capacity_milli"])
        return
    with Path(task["file"]).open("rb") as file:  # whose process brings a page in first pays for it
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with _swap(task["swap_mib"]), contextlib.closing(Pods(task)) as pods:
        sys.stdout.write(json.dumps(list(pods.run())))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
