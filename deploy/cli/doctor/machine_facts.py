"""Inspects a machine, its cgroups and its host workloads. It opens control files for writing, and writes nothing."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, Hierarchy, PlainHost, find
from slacktide.agents.node.host_pods import HostPods, watch
from slacktide.agents.node.pressure import KINDS, NO_GROUPS, Kind, Stall, pressure_files, set_trigger, stalling_groups
from slacktide.deploy.cli.doctor.facts import (
    CONTROLLERS,
    CgroupFacts,
    ControllerState,
    HostFacts,
    KnobFacts,
    MachineFacts,
    StateFolder,
)
from slacktide.schemas.errors import CgroupError, ConfigError
from slacktide.schemas.knob_table import CONTROLS, KNOBS, Control

_ANY_PRESSURE = parse.pressure_pct(b"some")
CLOCK_KEEPERS = (
    ("chronyd", ("chrony/chronyd.pid", "chronyd.pid")),
    ("ntpd", ("ntpd.pid", "ntp.pid", "ntpsec/ntpd.pid", "openntpd.pid")),
)
TIMESYNC_DONE = "systemd/timesync/synchronized"
_CLOCK_SOURCE = "devices/system/clocksource/clocksource0/current_clocksource"
_CAP_EFF = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)


def gather_cgroups(mount: Path, kubepods: str | None, host: PlainHost | None = None) -> CgroupFacts:
    """Inspect ``mount``; ``kubepods``: the pods' cgroup, else it is detected; ``host``: there is no kubelet."""
    hierarchy, trouble = _hierarchy(mount, kubepods, host)
    group = hierarchy.best_effort if hierarchy is not None and hierarchy.best_effort.is_dir() else None
    version = _version(mount)
    tier = None if hierarchy is None or group is None else hierarchy.tier(BEST_EFFORT)
    groups = {one.name: _group(mount, version, one.name, tier) for one in CONTROLLERS}
    return CgroupFacts(
        mount=str(mount),
        version=version,
        hybrid=version == 1 and (mount / "unified" / "cgroup.controllers").exists(),
        pods="" if hierarchy is None else str(hierarchy.pods),
        driver="none" if host is not None else "" if hierarchy is None else _driver(hierarchy),
        trouble=trouble,
        best_effort="" if group is None else str(group),
        controllers={name: _controller(mount, version, name, folder) for name, folder in groups.items()},
        knobs={} if group is None else {knob.name: _knob(knob, version, groups[knob.controller]) for knob in CONTROLS},
        idle_tier=group is not None and _words(group / KNOBS["cpu_idle"].files(version)[0]) == ["1"],
        no_stall="" if hierarchy is None else no_stall(hierarchy),
        refused_triggers={} if hierarchy is None else refused_triggers(hierarchy),
    )


def no_stall(hierarchy: Hierarchy) -> str:
    """Return why the agent reads no stall of latency-sensitive cgroups; "": it reads some."""
    root = hierarchy.unified
    groups = [] if root is None else stalling_groups(root, hierarchy)
    troubles = [pressure_trouble(group / "cpu.pressure", parse.stall_us) for group in groups]
    if not troubles:
        return NO_GROUPS
    return "" if "" in troubles else f"cpu.pressure: {troubles[0]}"


def refused_triggers(hierarchy: Hierarchy) -> dict[Kind, str]:
    """Return the kinds of pressure that the agent cannot wait on, with the reason."""
    paths = {file.kind: file.path for file in reversed(pressure_files(hierarchy, Path("/proc")))}
    return {kind: why for kind in KINDS if (why := _refused(paths.get(kind)))}


def _refused(path: str | None) -> str:
    """Return why a file accepts no trigger; "": it does. A trigger is set temporarily."""
    if path is None:
        return NO_GROUPS
    try:
        os.close(set_trigger(path, Stall()))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def pressure_trouble(file: Path, read: Callable[[bytes], float] = _ANY_PRESSURE) -> str:
    """Return why a pressure file is not readable; "": it is."""
    try:
        read(file.read_bytes())
    except OSError as error:  # a kernel that was booted without it has the file, and refuses to read it
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    return ""


def _driver(hierarchy: Hierarchy) -> Literal["systemd", "cgroupfs"]:
    return "systemd" if hierarchy.by_systemd else "cgroupfs"


def _hierarchy(mount: Path, kubepods: str | None, host: PlainHost | None) -> tuple[Hierarchy | None, str]:
    try:
        return find(mount, kubepods, host), ""
    except (CgroupError, OSError) as error:
        return None, str(error)


def _version(mount: Path) -> Literal[0, 1, 2]:
    if not os.access(mount, os.R_OK | os.X_OK, effective_ids=True):
        return 0
    if (mount / "cgroup.controllers").exists():
        return 2
    return 1 if _root(mount, 1, "cpu") is not None else 0


def _root(mount: Path, version: int, controller: str) -> Path | None:
    """Return the root of a controller's cgroups; on v1 its own mount or a shared one, such as ``cpu,cpuacct``."""
    if version == 2:
        return mount
    if (mount / controller).is_dir():
        return mount / controller
    shared = (folder for folder in sorted(mount.glob("*,*")) if controller in folder.name.split(","))
    return next(shared, None)


def _group(mount: Path, version: int, controller: str, tier: os.PathLike[str] | None) -> Path | None:
    """Return the best-effort group in this controller's hierarchy; None: there is none."""
    root = None if tier is None else _root(mount, version, controller)
    if root is None or tier is None or not (root / tier).is_dir():
        return None
    return root / tier


def _controller(mount: Path, version: int, name: str, group: Path | None) -> ControllerState:
    if not version:
        return "absent"
    if version == 1:
        there = _root(mount, version, name) is not None
        return "absent" if not there else "usable" if group is not None else "not handed on"
    if name == "cpuacct":  # part of every group
        return "usable"
    if name == "freezer":  # so is this, since there is such a file; the root has none
        return "usable" if group is None or (group / "cgroup.freeze").exists() else "absent"
    if name not in _words(mount / "cgroup.controllers"):
        return "absent"
    return "usable" if group is not None and name in _words(group / "cgroup.controllers") else "not handed on"


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _knob(knob: Control, version: int, group: Path | None) -> KnobFacts:
    files = knob.files(version)
    if not files or group is None:
        return KnobFacts(files=files, state="absent", trouble="")
    for name in files:
        try:
            os.close(os.open(group / name, os.O_WRONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            return KnobFacts(files=(name,), state="absent", trouble="")
        except OSError as error:
            return KnobFacts(files=(name,), state="not writable", trouble=error.strerror or str(error))
    return KnobFacts(files=files, state="writable", trouble="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """The mount points of a machine's facts."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    run: Path = Path("/run")


def gather_machine(mounts: Mounts, state_folder: Path) -> MachineFacts:
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


def gather_host(file: Path, cgroup_mount: Path, proc_mount: Path) -> HostFacts | ConfigError:
    """Inspect cgroups and Docker's list, read-only. Without cgroups no workload is found."""
    try:
        watched = watch(file)
    except ConfigError as error:
        return error
    layout = PlainHost(watched.value.best_effort)
    try:
        hierarchy = find(cgroup_mount, None, layout)
    except CgroupError:  # which is reported of control groups, too
        return HostFacts(file=str(file), best_effort=layout.best_effort, pods=(), remarks=())
    host = HostPods(watched, layout, hierarchy, proc_mount)
    pods = tuple(f"{pod.name} ({pod.qos_label})" for pod in host.look().pods)
    return HostFacts(file=str(file), best_effort=layout.best_effort, pods=pods, remarks=tuple(host.remarks))
