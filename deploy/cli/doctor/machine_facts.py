"""Inspects a machine and this process by /proc, /sys and /run."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import dataclass
from pathlib import Path

from slacktide.deploy.cli.doctor.cgroup_facts import pressure_trouble
from slacktide.deploy.cli.doctor.facts import MachineFacts, StateFolder

CLOCK_KEEPERS = (
    ("chronyd", ("chrony/chronyd.pid", "chronyd.pid")),
    ("ntpd", ("ntpd.pid", "ntp.pid", "ntpsec/ntpd.pid", "openntpd.pid")),
)
TIMESYNC_DONE = "systemd/timesync/synchronized"
_CLOCK_SOURCE = "devices/system/clocksource/clocksource0/current_clocksource"
_CAP_EFF = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """The mount points of a machine's facts."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    run: Path = Path("/run")


def gather(mounts: Mounts, state_folder: Path) -> MachineFacts:
    """Inspect the machine, read-only."""
    kept_by, synchronised = _clock(mounts)
    return MachineFacts(
        kernel=_text(mounts.proc / "sys/kernel/osrelease"),
        cpus=os.cpu_count() or 1,
        user_id=os.geteuid(),
        capabilities=_capabilities(mounts.proc),
        clock_source=_text(mounts.sys / _CLOCK_SOURCE),
        clock_kept_by=kept_by,
        clock_synchronised=synchronised,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        state=_state(state_folder),
        pressure={kind: pressure_trouble(mounts.proc / "pressure" / kind) for kind in ("cpu", "memory", "io")},
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


def _there(path: Path) -> bool:
    """Return whether the file is visible. Files in a folder without access are not."""
    return os.access(path, os.F_OK, effective_ids=True)


def _capabilities(proc: Path) -> int | None:
    found = _CAP_EFF.search(_text(proc / "self/status"))
    return None if found is None else int(found[1], 16)


def _clock(mounts: Mounts) -> tuple[str, bool]:
    """Return the service that synchronizes the clock, and whether it reports success."""
    if _there(mounts.run / TIMESYNC_DONE):
        return "systemd-timesyncd", True
    for name, files in CLOCK_KEEPERS:
        pids = (_text(mounts.run / file) for file in files)
        # A leftover file of a dead process names no running process.
        if any(pid.isdigit() and _there(mounts.proc / pid) for pid in pids):
            return name, False
    return "", False


def _state(folder: Path) -> StateFolder:
    """Return the folder, or the nearest existing one above it, in which it would be created."""
    path = folder.absolute()
    while not _there(path) and path != path.parent:
        path = path.parent
    trouble = ""
    if not path.is_dir():
        trouble = f"{path} is not a folder"
    elif not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
        trouble = f"{path} is not writable by this user"
    try:
        room = os.statvfs(path)
    except OSError as error:
        return StateFolder(path=str(folder), trouble=trouble or f"{path}: {error.strerror}", free_bytes=0)
    return StateFolder(path=str(folder), trouble=trouble, free_bytes=room.f_bavail * room.f_frsize)
