"""Kills and freezes best-effort pods through their cgroups. Implements ``BestEffortPods``."""

from __future__ import annotations

from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.best_effort_groups import BestEffortGroups
from slacktide.agents.node.cgroup.freezer import Freezer
from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.processes import Processes
from slacktide.schemas.errors import CgroupError


class CgroupBestEffort:
    """Each call looks up the pod's cgroup and checks it again."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._groups = BestEffortGroups(hierarchy)
        self._freezer = Freezer(hierarchy)
        self._processes = Processes(hierarchy, self._freezer)

    @property
    def freeze_trouble(self) -> str:
        """Why no pod can be frozen on this node; "": freezing works."""
        return self._freezer.trouble

    def processes(self, uid: str) -> int:
        """Implement ``BestEffortPods.processes``."""
        group = self._checked(uid)
        return 0 if group is None else self._processes.count(group)

    def terminate(self, uid: str) -> None:
        """Implement ``BestEffortPods.terminate``."""
        group = self._checked(uid)
        if group is not None:
            self._processes.terminate(group)

    def kill(self, uid: str) -> None:
        """Implement ``BestEffortPods.kill``."""
        group = self._checked(uid)
        if group is not None:
            self._processes.kill(group)

    def freeze(self, uid: str) -> bool:
        """Implement ``BestEffortPods.freeze``."""
        group = self._checked(uid)
        if group is None:
            raise CgroupError(uid, "the pod no longer exists")
        return self._freezer.freeze(group)

    def thaw(self, uid: str) -> None:
        """Implement ``BestEffortPods.thaw``."""
        group = self._checked(uid)
        if group is not None:
            self._freezer.thaw(group)

    def frozen(self) -> frozenset[str]:
        """Implement ``BestEffortPods.frozen``."""
        return frozenset(uid for uid, group in self._groups.groups().items() if self._freezer.is_frozen(group))

    def _checked(self, uid: str) -> PurePosixPath | None:
        group = self._groups.group(uid)
        if group is not None:
            self._processes.check(group)
        return group
