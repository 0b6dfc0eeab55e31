"""The kernel interface to kill and freeze best-effort pods."""

from __future__ import annotations

from typing import Protocol


class BestEffortPods(Protocol):
    """Pods whose cgroups are below the best-effort cgroup. Other pods are always refused."""

    @property
    def freeze_trouble(self) -> str:
        """Why no pod can be frozen on this node; "": freezing works."""

    def processes(self, uid: str) -> int:
        """How many processes run in a pod; 0: none, or the pod is gone.

        Raises:
            CgroupError: the pod is not best-effort, must not be killed, or its processes cannot be read.

        """

    def terminate(self, uid: str) -> None:
        """Send SIGTERM to a pod's processes. A frozen pod is thawed for it.

        Raises:
            CgroupError: as in ``processes``, or a process could not be signalled.

        """

    def kill(self, uid: str) -> None:
        """Send SIGKILL to a pod's processes. They may take a moment to end: see ``processes``.

        Raises:
            CgroupError: as in ``processes``, or the kernel refused.

        """

    def freeze(self, uid: str) -> bool:
        """Freeze a pod. False: some processes freeze later, when a system call returns.

        Raises:
            CgroupError: as in ``processes``, or the kernel refused, or cannot.

        """

    def thaw(self, uid: str) -> None:
        """Thaw a pod. A pod that is gone is ignored.

        Raises:
            CgroupError: as in ``processes``, or it stays frozen.

        """

    def frozen(self) -> frozenset[str]:
        """Uids of all frozen pods, whoever froze them.

        Raises:
            CgroupError: the state cannot be read.

        """
