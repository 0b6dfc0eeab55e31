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
        """How many processes run in a pod; 0: none, or the pod is gone.

        Raises:
            CgroupError: the pod is not best-effort, must not be killed, or its processes cannot be read.

        """
        group = self._checked(uid)
        return 0 if group is None else self._processes.count(group)

    def terminate(self, uid: str) -> None:
        """Send SIGTERM to a pod's processes. A frozen pod is thawed for it.

        Raises:
            CgroupError: as in ``processes``, or a process could not be signalled.

        """
        group = self._checked(uid)
        if group is not None:
            self._processes.terminate(group)

    def kill(self, uid: str) -> None:
        """Send SIGKILL to a pod's processes. They may take a moment to end: see ``processes``.

        Raises:
            CgroupError: as in ``processes``, or the kernel refused.

        """
        group = self._checked(uid)
        if group is not None:
            self._processes.kill(group)

    def freeze(self, uid: str) -> bool:
        """Freeze a pod. False: some processes freeze later, when a system call returns.

        Raises:
            CgroupError: as in ``processes``, or the kernel refused, or cannot.

        """
        group = self._checked(uid)
        if group is None:
            raise CgroupError(uid, "the pod is gone")
        return self._freezer.freeze(group)

    def thaw(self, uid: str) -> None:
        """Thaw a pod. A pod that is gone is ignored.

        Raises:
            CgroupError: as in ``processes``, or it stays frozen.

        """
        group = self._checked(uid)
        if group is not None:
            self._freezer.thaw(group)

    def frozen(self) -> frozenset[str]:
        """Uids of all frozen pods, whoever froze them.

        Raises:
            CgroupError: the state cannot be read.

        """
        return frozenset(uid for uid, group in self._groups.groups().items() if self._freezer.is_frozen(group))

    def _checked(self, uid: str) -> PurePosixPath | None:
        """The pod's cgroup; None: it is gone."""
        group = self._groups.group(uid)
        if group is not None:
            self._processes.check(group)
        return group
