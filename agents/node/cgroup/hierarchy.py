"""Finds the cgroup hierarchies, v1 or v2, and which cgroups are pods, on a Kubernetes node and on a host without it."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from slacktide.schemas.errors import CgroupError

BEST_EFFORT = "besteffort"
BURSTABLE = "burstable"
GUARANTEED = ""
TIERS = (BEST_EFFORT, BURSTABLE, GUARANTEED)
_SLICE = ".slice"
_NO_GROUP = PurePosixPath("no common cgroup")
"""A name that no cgroup has."""
_CONTAINER = re.compile(r"(?:[a-z-]+-)?([0-9a-f]{64})(?:\.scope)?")


class Layout(Protocol):
    """Names of cgroups. All paths are relative to each root."""

    @property
    def pods(self) -> PurePosixPath:
        """The parent of the best-effort cgroup, whose CPUs bound it."""

    def tier(self, name: str) -> PurePosixPath:
        """Return the cgroup of one tier. That of ``BEST_EFFORT`` is the one that is limited."""

    def pod_groups(self, root: Path, tier: str) -> Iterator[tuple[str, str]]:
        """Return uid and cgroup of each pod of a tier in the hierarchy at ``root``. Raises OSError if unreadable."""

    def may_set(self, group: PurePosixPath) -> bool:
        """Return whether the agent may set this pod's knobs."""


class Kubepods:
    """Cgroups made by a kubelet with the cgroupfs or systemd driver. ``pods`` ends in ``kubepods[.slice]``."""

    def __init__(self, pods: PurePosixPath) -> None:
        self.pods = pods
        self.by_systemd = pods.suffix == _SLICE

    def tier(self, name: str) -> PurePosixPath:
        """Return the cgroup of one QoS tier. Guaranteed pods are directly in the pods' cgroup."""
        if name == GUARANTEED:
            return self.pods
        return self.pods / (f"{self.pods.stem}-{name}{_SLICE}" if self.by_systemd else name)

    def pod_groups(self, root: Path, tier: str) -> Iterator[tuple[str, str]]:
        """Cgroups named after a pod's uid."""
        above = self.tier(tier)
        folder, (head, tail) = str(above), (f"{above.stem}-pod", _SLICE) if self.by_systemd else ("pod", "")
        for name in _groups_in(root / above):
            if name.startswith(head) and name.endswith(tail):
                uid = name[len(head) : len(name) - len(tail)]
                # systemd's names use underscores, since dashes separate parents.
                yield uid.replace("_", "-") if self.by_systemd else uid, f"{folder}/{name}"

    def may_set(self, group: PurePosixPath) -> bool:  # noqa: ARG002 - of any
        """Always: a kubelet writes a pod's cgroup only once."""
        return True


class PlainHost:
    """Systemd units and containers without Kubernetes. Each cgroup in the best-effort cgroup is a pod."""

    def __init__(self, best_effort: PurePosixPath) -> None:
        self.best_effort = best_effort
        self.pods = best_effort.parent
        self.others: Mapping[str, PurePosixPath] = {}
        """Cgroups elsewhere that are pods, by uid. The lister of pods replaces it as a whole."""

    def tier(self, name: str) -> PurePosixPath:
        """Return the best-effort cgroup. Other pods have no common parent."""
        return self.best_effort if name == BEST_EFFORT else _NO_GROUP

    def pod_groups(self, root: Path, tier: str) -> Iterator[tuple[str, str]]:
        """Cgroups in the best-effort cgroup; the others count as guaranteed."""
        if tier == BEST_EFFORT:
            for name in _groups_in(root / self.best_effort):
                yield uid_of(self.best_effort / name), f"{self.best_effort}/{name}"
        elif tier == GUARANTEED:
            yield from ((uid, str(group)) for uid, group in self.others.items() if (root / group).is_dir())

    def may_set(self, group: PurePosixPath) -> bool:
        """Only in the best-effort cgroup. Others belong to systemd and Docker."""
        return group.is_relative_to(self.best_effort)


def uid_of(group: PurePosixPath) -> str:
    """Return the uid of a cgroup without Kubernetes: its container id, else its path with colons for slashes."""
    container = _CONTAINER.fullmatch(group.name)
    return ":".join(group.parts) if container is None else container[1]


def _groups_in(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield entry.name


GUARANTEED_MAX = 16
"""Most guaranteed pods whose stalls are read. Each is read alone, since their parent holds best-effort pods, too."""
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


def stalling_groups(root: Path, hierarchy: Hierarchy) -> Iterator[Path]:
    """Cgroups without best-effort pods: the burstable tier, and each guaranteed pod."""
    burstable = root / hierarchy.tier(BURSTABLE)
    if burstable.is_dir():
        yield burstable
    try:
        pods = sorted(group for _, group in hierarchy.layout.pod_groups(root, GUARANTEED))
    except OSError:
        return
    yield from (root / group for group in pods[:GUARANTEED_MAX])


def find(mount: Path, kubepods: str | None, layout: Layout | None = None) -> Hierarchy:
    """Find the hierarchies below ``mount`` (/sys/fs/cgroup) and the cgroup that holds the pods.

    ``kubepods`` is relative to each hierarchy; None: searched at the top and one level below, unless a layout is given.

    Raises:
        CgroupError: no hierarchy, no cgroup of pods, or more than one.
    """
    unified = (mount / "cgroup.controllers").exists()
    # A hybrid machine also mounts v2, but its controllers are on v1.
    roots = {one: mount if unified else _version_1_root(mount, one) for one in _CONTROLLERS}
    cpu = roots.pop("cpu")
    if cpu is None:
        raise CgroupError(
            str(mount),
            "no cgroup hierarchy: neither v2 (a file cgroup.controllers) nor v1 (a folder cpu or cpu,cpuacct); "
            "give their mount point with --cgroup-mount",
        )
    if layout is None:
        layout = Kubepods(_given(cpu, kubepods) if kubepods is not None else _found(cpu))
    return Hierarchy(version=2 if unified else 1, mount=mount, cpu=cpu, layout=layout, **roots)


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
    if not found:
        # Nested as in kind: ``kubelet/kubepods`` or ``kubelet.slice/kubelet-kubepods.slice``.
        nested = ((above, name) for above in _folders(cpu)
                  for name in ("kubepods", "kubepods.slice", f"{above.stem}-kubepods.slice"))  # fmt: skip
        found = [PurePosixPath(above.name, name) for above, name in nested if (above / name).is_dir()]
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


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except OSError:
        return []
