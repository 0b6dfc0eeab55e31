"""Finds the cgroups of best-effort pods, again for each act, so that no other pod is signalled or frozen."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from slacktide.agents.node.cgroup.hierarchy import BEST_EFFORT, TIERS, Hierarchy
from slacktide.agents.node.cgroup.read import why_of
from slacktide.schemas.errors import CgroupError

_MOUNTS = Path("/proc/self/mountinfo")
_KERNELS = ("cgroup", "cgroup2")


class BestEffortGroups:
    """Pods with cgroups in the best-effort cgroup now. A uid is only compared, never used in a path.

    Methods raise CgroupError if the best-effort cgroup cannot be read, or a pod is not best-effort.
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy

    def groups(self) -> dict[str, PurePosixPath]:
        """Return the cgroups by uid, relative to the best-effort cgroup."""
        try:
            return {
                uid: PurePosixPath(group.rpartition("/")[2]) for uid, group in self._hierarchy.pod_groups(BEST_EFFORT)
            }
        except OSError as error:
            raise CgroupError(str(self._hierarchy.best_effort), why_of(error)) from error

    def group(self, uid: str) -> PurePosixPath | None:
        """Return the cgroup of a pod, relative to the best-effort cgroup; None: the pod is gone."""
        group = self.groups().get(uid)
        root = self._hierarchy.best_effort
        if group is None:
            self._must_be_nowhere(uid)
        elif Path(os.path.realpath(root / group)).parent != Path(os.path.realpath(root)):
            raise CgroupError(str(root / group), "not below the best-effort cgroup: never changed")
        return group

    def _must_be_nowhere(self, uid: str) -> None:
        for tier in TIERS:
            try:
                found = dict(self._hierarchy.pod_groups(tier)).get(uid)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise CgroupError(str(self._hierarchy.cpu / self._hierarchy.tier(tier)), why_of(error)) from error
            if found is not None:
                raise CgroupError(
                    str(self._hierarchy.cpu / found), "not the cgroup of a best-effort pod: never changed"
                )


def is_kernels(folder: Path) -> bool:
    """Return whether the folder is of a real kernel, not a simulated node. Raises OSError if it is gone."""
    device = folder.stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    for line in _MOUNTS.read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == name and after.split()[0] in _KERNELS:
            return True
    return False
