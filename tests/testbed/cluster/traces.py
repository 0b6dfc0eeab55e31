"""What a kubelet and its pods leave on a machine outside their folder, and how it goes again."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

BRIDGE = "slacktide0"
CGROUPS = Path("/sys/fs/cgroup")
CNI_RESULTS = Path("/var/lib/cni/results")
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Which kernel settings the kubelet changes for itself."""


def kernel_settings() -> dict[str, str]:
    """What is set now, by path under ``/proc/sys``."""
    return {key: Path("/proc/sys", key).read_text().strip() for key in SYSCTLS}


def kubepods() -> list[Path]:
    return [tree for tree in sorted(CGROUPS.glob("*/kubepods")) if tree.is_dir()]


def _under_kubepods() -> set[int]:
    pids: set[int] = set()
    for tree in kubepods():
        for procs in tree.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                pids.update(map(int, procs.read_text().split()))
    return pids


def _shims(folder: Path) -> set[int]:
    """Each pod's shim outlives containerd; it is ours if it names our containerd's socket."""
    ours = set()
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = cmdline.read_bytes().split(b"\0")
            if b"containerd-shim" in words[0] and str(folder / "containerd.sock").encode() in words:
                ours.add(int(cmdline.parent.name))
    return ours


def _kill(pids: set[int], within_s: float = 60.0) -> None:
    until_s = time.monotonic() + within_s
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while any(_alive(pid) for pid in pids) and time.monotonic() < until_s:
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _remove_groups(within_s: float = 60.0) -> None:
    """Empty groups can be removed by rmdir alone, the innermost first; one whose last process just died, soon."""
    until_s = time.monotonic() + within_s
    for tree in kubepods():
        for group in [*sorted((each for each in tree.rglob("*") if each.is_dir()), reverse=True), tree]:
            while True:
                try:
                    group.rmdir()
                    break
                except OSError:
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(0.05)


def remove(folder: Path, settings: dict[str, str]) -> None:
    """Remove pods, mounts, networks and groups of the node that lived in a folder, and set the kernel back.

    Its kubelet and containerd have ended before.
    """
    # What is frozen cannot die.
    for tree in kubepods():
        for state in tree.rglob("freezer.state"):
            with contextlib.suppress(OSError):
                state.write_text("THAWED")
    _kill(_shims(folder) | _under_kubepods())
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for at in sorted((each for each in mounts if each.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", at], check=False, capture_output=True)
    _remove_groups()
    if Path("/sys/class/net", BRIDGE).exists():
        subprocess.run(["ip", "link", "delete", BRIDGE], check=True, capture_output=True)
    for results in [*CNI_RESULTS.glob("slacktide-*"), *CNI_RESULTS.glob("cni-loopback-*")]:
        results.unlink()
    for link in Path("/var/log/containers").glob("*"):
        if link.is_symlink() and str(link.readlink()).startswith(f"{folder}/"):
            link.unlink()
    Path("/var/lib/kubelet/device-plugins/kubelet.sock").unlink(missing_ok=True)
    for empty in ("/var/lib/kubelet/device-plugins", "/var/lib/kubelet", "/var/lib/cni/results", "/var/lib/cni"):
        with contextlib.suppress(OSError):
            Path(empty).rmdir()
    for key, value in settings.items():
        Path("/proc/sys", key).write_text(value)
