"""Run a command under a kernel of its own on this machine's file system: what all such kernels have in common.

The runner boots the kernel with itself as process 1. There it makes the place what the command expects, runs it and
turns the machine off. Between the two are a folder, with the task and the exit status, and a serial line for output.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import tty
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FAILED = 125
MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("tmpfs", "/run"),
    ("devpts", "/dev/pts"),
    ("tmpfs", "/dev/shm"),
)
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


class MissingError(Exception):
    """What this kernel needs is not here; the text says how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A kernel to run a command under."""

    name: str
    boot: Callable[[Path, int, BinaryIO], subprocess.Popen[bytes]]
    """Starts ``init`` of a folder as process 1; output goes into a pipe, the console into a file. All processes that
    it takes are in the group of the one it returns, which ends when the kernel does."""
    line: str
    """The kernel's end of that pipe."""
    controllers: str
    """Handed on to groups below the root."""


def main(guest: Guest, usage: str) -> int:
    """Outside: start the kernel, pass on what it prints, and clear up. Inside: be process 1."""
    if os.getpid() == 1:
        inside(guest, Path(sys.argv[1]))
    if len(sys.argv) < 2 or sys.argv[1] in {"-h", "--help"}:
        say(usage)
        return 0 if len(sys.argv) > 1 else 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix=f"{guest.name}.") as folder:
        try:
            return outside(guest, Path(folder), sys.argv[1:])
        except MissingError as error:
            say(f"{guest.name}: {error}")
            return FAILED


def say(text: str) -> None:
    """To whoever called."""
    sys.stderr.write(f"{text}\n")


def outside(guest: Guest, folder: Path, command: list[str]) -> int:
    """Boot, and wait until the command has ended and the kernel with it."""
    task = {"command": command, "environment": dict(os.environ) | {"CGROUP2_VM": "1"}, "folder": str(Path.cwd())}
    (folder / "task").write_text(json.dumps(task))
    init = folder / "init"
    init.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{Path(sys.argv[0]).resolve()}" "{folder}"\n')
    init.chmod(0o755)
    output, line = os.pipe()
    with (folder / "console").open("ab") as console:
        kernel = guest.boot(folder, line, console)
    os.close(line)
    watch, life = os.pipe()  # ends with this process, however that ends
    subprocess.Popen(
        ["/bin/sh", "-c", f"read end || {{ kill -s KILL -- -{kernel.pid}; rm -rf '{folder}'; }}"],
        stdin=watch, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(watch)
    passing_on = passing(output, sys.stdout.fileno())
    try:
        kernel.wait()
        passing_on.join()
    except SystemExit:
        say("\n".join([f"{guest.name}: told to end before the kernel did:", *last_words(folder)]))
        raise
    finally:
        end(kernel)
        os.write(life, b"\n")
    try:
        return int((folder / "status").read_text())
    except (FileNotFoundError, ValueError):
        say("\n".join([f"{guest.name}: the kernel ended before the command did:", *last_words(folder)]))
        return FAILED


def last_words(folder: Path) -> list[str]:
    """What the kernel has said on its console at last."""
    return (folder / "console").read_text(errors="replace").splitlines()[-20:]


def passing(output: int, to: int) -> threading.Thread:
    """Copy what comes, as it comes, until nobody can write any more."""

    def copy() -> None:
        try:
            while chunk := os.read(output, 65536):
                while chunk:
                    chunk = chunk[os.write(to, chunk) :]
        except BrokenPipeError:  # nobody reads any more: end, as anything in a pipe does
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def end(kernel: subprocess.Popen[bytes]) -> None:
    """Kill the kernel and all that it took, at once.

    Guests of user-mode Linux are processes of this machine that it traces: without it they would run on, here, as root.
    """
    try:
        os.killpg(kernel.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        kernel.wait()


def inside(guest: Guest, folder: Path) -> None:
    """As process 1, make the place what the command expects, run it, and turn the machine off."""
    task = json.loads((folder / "task").read_text())
    furnish(guest.controllers)
    line = os.open(guest.line, os.O_WRONLY | os.O_NOCTTY)
    tty.setraw(line)
    status = run(guest.name, task, line)
    (folder / "status").write_text(str(status))
    termios.tcdrain(line)
    os.sync()
    Path("/proc/sysrq-trigger").write_text("o")
    while True:
        signal.pause()


def furnish(controllers: str) -> None:
    """File systems, the controllers, the loopback network."""
    libc = ctypes.CDLL(None, use_errno=True)
    for kind, place in MOUNTS:
        Path(place).mkdir(exist_ok=True)
        if libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None) != 0:
            raise OSError(ctypes.get_errno(), f"mounting {kind}", place)
    Path("/dev/fd").symlink_to("/proc/self/fd")
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text(controllers)
    with socket.socket() as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack_from("16sH", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def run(name: str, task: dict, line: int) -> int:
    """Run the command, which writes into a pipe as if nobody watched; its exit status as a shell tells it."""
    output, its_end = os.pipe()
    passing_on = passing(output, line)
    try:
        process = subprocess.Popen(
            task["command"], env=task["environment"], cwd=task["folder"], stdin=subprocess.DEVNULL,
            stdout=its_end, stderr=its_end, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        os.write(line, f"{name}: {task['command'][0]}: {error.strerror}\n".encode())
        return 127
    os.close(its_end)
    pid = ended = 0
    while pid != process.pid:  # process 1 is everyone's last parent
        pid, ended = os.wait()
    passing_on.join(timeout=1)  # what it left running may still hold the pipe
    code = os.waitstatus_to_exitcode(ended)
    return code if code >= 0 else 128 - code
