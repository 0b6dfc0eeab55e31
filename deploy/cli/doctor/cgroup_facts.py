"""Inspects cgroups as an agent would find them. Knobs are opened for writing, and not written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from slacktide.agents.node.ahead.pressure import KINDS, NO_GROUPS, Kind, Stall, pressure_files, set_trigger
from slacktide.agents.node.cgroup import parse
from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, Hierarchy, find
from slacktide.agents.node.cgroup.layout import PlainHost
from slacktide.agents.node.cgroup.stall import stalling_groups
from slacktide.deploy.cli.doctor.controllers import CONTROLLERS
from slacktide.deploy.cli.doctor.facts import CgroupFacts, ControllerState, KnobFacts
from slacktide.schemas.errors import CgroupError
from slacktide.schemas.knob_table import CONTROLS, KNOBS, Control

_ANY_PRESSURE = parse.pressure_pct(b"some")


def gather(mount: Path, kubepods: str | None, host: PlainHost | None = None) -> CgroupFacts:
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
