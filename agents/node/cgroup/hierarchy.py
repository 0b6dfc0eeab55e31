"""Finds the cgroup hierarchies, v1 or v2, and the cgroup that holds the pods."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from slacktide.agents.node.cgroup.layout import BEST_EFFORT, BURSTABLE, GUARANTEED, TIERS, Kubepods, Layout
from slacktide.schemas.errors import CgroupError

__all__ = ["BEST_EFFORT", "BURSTABLE", "GUARANTEED", "TIERS", "Hierarchy", "find"]

_CONTROLLERS = ("cpu", "cpuacct", "memory", "cpuset", "freezer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """Roots of the controllers, and the layout below them."""

    version: Literal[1, 2]
    mount: Path
    cpu: Path
    cpuacct: Path | None
    """Counts CPU time; on v2 the same as ``cpu``. None: not mounted."""
    memory: Path | None
    cpuset: Path | None
    freezer: Path | None
    """None: not mounted. On v2 every group can be frozen, since kernel 5.2."""
    layout: Layout
    """Which cgroups are pods, and which one is best-effort; the same below each root."""

    @property
    def pods(self) -> PurePosixPath:
        """The parent of the best-effort cgroup, relative to each root."""
        return self.layout.pods

    @property
    def by_systemd(self) -> bool:
        """Whether systemd names the cgroups; otherwise the cgroupfs driver does."""
        return self.pods.suffix == ".slice"

    def tier(self, name: str) -> PurePosixPath:
        """Return the cgroup of one QoS tier, relative to each root."""
        return self.layout.tier(name)

    @property
    def best_effort(self) -> Path:
        """The folder of the cgroup that holds all best-effort pods."""
        return self.cpu / self.tier(BEST_EFFORT)

    @property
    def unified(self) -> Path | None:
        """The v2 root, also on a hybrid machine. Only v2 has PSI per cgroup."""
        root = self.mount if self.version == 2 else self.mount / "unified"
        return root if (root / "cgroup.controllers").exists() else None

    def pod_groups(self, tier: str) -> Iterator[tuple[str, str]]:
        """Return uid and cgroup (relative to each root) of each pod of a tier. Raises OSError if unreadable."""
        return self.layout.pod_groups(self.cpu, tier)


def find(mount: Path, kubepods: str | None, layout: Layout | None = None) -> Hierarchy:
    """Find the hierarchies below ``mount`` (/sys/fs/cgroup) and the cgroup that holds the pods.

    ``kubepods`` is relative to each hierarchy; None: searched at the top and one level below, unless a layout is given.

    Raises:
        CgroupError: no hierarchy, no cgroup of pods, or more than one.
    """
    version, roots = _roots(mount)
    cpu = roots["cpu"]
    assert cpu is not None
    if layout is None:
        layout = Kubepods(_given(cpu, kubepods) if kubepods is not None else _found(cpu))
    return Hierarchy(
        version=version,
        mount=mount,
        cpu=cpu,
        cpuacct=roots["cpuacct"],
        memory=roots["memory"],
        cpuset=roots["cpuset"],
        freezer=roots["freezer"],
        layout=layout,
    )


def _roots(mount: Path) -> tuple[Literal[1, 2], dict[str, Path | None]]:
    if (mount / "cgroup.controllers").exists():
        return 2, dict.fromkeys(_CONTROLLERS, mount)
    # A hybrid machine also mounts v2, but its controllers are on v1.
    version_1 = {controller: _version_1_root(mount, controller) for controller in _CONTROLLERS}
    if version_1["cpu"] is not None:
        return 1, version_1
    raise CgroupError(
        str(mount),
        "no cgroup hierarchy: neither v2 (a file cgroup.controllers) nor v1 (a folder cpu or cpu,cpuacct); "
        "give their mount point with --cgroup-mount",
    )


def _version_1_root(mount: Path, controller: str) -> Path | None:
    """Return the controller's own mount (or link), else a shared one such as ``cpu,cpuacct``."""
    if (mount / controller).is_dir():
        return mount / controller
    return next((folder for folder in _folders(mount) if controller in folder.name.split(",")), None)


def _given(cpu: Path, kubepods: str) -> PurePosixPath:
    pods = PurePosixPath(kubepods.strip("/"))
    if not pods.parts or ".." in pods.parts:
        raise CgroupError(kubepods, "not a cgroup; accepted: a path relative to each hierarchy, such as kubepods")
    if not (cpu / pods).is_dir():
        raise CgroupError(
            str(cpu / pods),
            "no such cgroup; give the cgroup of all pods with --kubepods, relative to each hierarchy",
        )
    return pods


def _found(cpu: Path) -> PurePosixPath:
    found = [PurePosixPath(name) for name in ("kubepods", "kubepods.slice") if (cpu / name).is_dir()]
    found = found or list(_nested(cpu))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(map(str, found))
        raise CgroupError(str(cpu), f"several cgroups may contain the pods: {names}; choose one with --kubepods")
    raise CgroupError(
        str(cpu),
        "no cgroup contains pods: looked for kubepods and kubepods.slice, here and one level below. Check that "
        "a kubelet runs on this machine. If its pods are in another cgroup, give it with --kubepods, relative "
        "to each hierarchy",
    )


def _nested(cpu: Path) -> Iterator[PurePosixPath]:
    """Nested kubepods, as in kind: ``kubelet/kubepods`` or ``kubelet.slice/kubelet-kubepods.slice``."""
    for above in _folders(cpu):
        for name in ("kubepods", "kubepods.slice", f"{above.stem}-kubepods.slice"):
            if (above / name).is_dir():
                yield PurePosixPath(above.name, name)


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except OSError:
        return []
