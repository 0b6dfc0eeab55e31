"""Best-effort pods through their cgroups: ``slacktide.agents.node.evict.best_effort.BestEffortPods``."""

from __future__ import annotations

from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.best_effort_groups import BestEffortGroups
from slacktide.agents.node.cgroup.freezer import Freezer
from slacktide.agents.node.cgroup.hierarchy import Hierarchy
from slacktide.agents.node.cgroup.processes import Processes
from slacktide.schemas.errors import CgroupError


class CgroupBestEffort:
    """Each call looks the pod up anew, and checks it."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._groups = BestEffortGroups(hierarchy)
        self._freezer = Freezer(hierarchy)
        self._processes = Processes(hierarchy, self._freezer)

    @property
    def freeze_trouble(self) -> str:
        """Why no pod can be frozen on this node; "": they can."""
        return self._freezer.trouble

    def processes(self, uid: str) -> int:
        """How many processes run in a pod; 0: none, or the pod is gone.

        Raises:
            CgroupError: it is not a best-effort pod, or must not be ended, or its processes cannot be read.

        """
        group = self._checked(uid)
        return 0 if group is None else self._processes.count(group)

    def terminate(self, uid: str) -> None:
        """Ask a pod's processes to end; a frozen pod goes on to do so.

        Raises:
            CgroupError: as in ``processes``, or not all could be asked.

        """
        group = self._checked(uid)
        if group is not None:
            self._processes.terminate(group)

    def kill(self, uid: str) -> None:
        """End a pod's processes now. Some may need a moment: ``processes`` shows them.

        Raises:
            CgroupError: as in ``processes``, or the kernel refused.

        """
        group = self._checked(uid)
        if group is not None:
            self._processes.kill(group)

    def freeze(self, uid: str) -> bool:
        """Stop a pod's processes. False: some stop only when the kernel is done with something for them.

        Raises:
            CgroupError: as in ``processes``, or the kernel refused, or cannot.

        """
        group = self._checked(uid)
        if group is None:
            raise CgroupError(uid, "the pod is gone")
        return self._freezer.freeze(group)

    def thaw(self, uid: str) -> None:
        """Let a pod's processes go on; of a pod that is gone nothing is wanted.

        Raises:
            CgroupError: as in ``processes``, or it stays frozen.

        """
        group = self._checked(uid)
        if group is not None:
            self._freezer.thaw(group)

    def frozen(self) -> frozenset[str]:
        """Uids of the pods that are frozen, whoever did it.

        Raises:
            CgroupError: that cannot be read.

        """
        return frozenset(uid for uid, group in self._groups.groups().items() if self._freezer.is_frozen(group))

    def _checked(self, uid: str) -> PurePosixPath | None:
        """The pod's group; None: it is gone."""
        group = self._groups.group(uid)
        if group is not None:
            self._processes.check(group)
        return group
