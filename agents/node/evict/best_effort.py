"""The kernel interface to kill and freeze best-effort pods."""

from __future__ import annotations

from typing import Protocol


class BestEffortPods(Protocol):
    """Pods whose cgroups are below the best-effort cgroup. Other pods are always refused.

    Methods raise CgroupError if the pod is refused, its processes cannot be read or signalled, or the kernel refuses.
    """

    @property
    def freeze_trouble(self) -> str:
        """Why no pod can be frozen on this node; "": freezing works."""

    def processes(self, uid: str) -> int:
        """Return how many processes run in a pod; 0: none, or the pod is gone."""

    def terminate(self, uid: str) -> None:
        """Send SIGTERM to a pod's processes. A frozen pod is thawed for it."""

    def kill(self, uid: str) -> None:
        """Send SIGKILL to a pod's processes. They may take a moment to end: see ``processes``."""

    def freeze(self, uid: str) -> bool:
        """Freeze a pod. False: some processes freeze later, when a system call returns."""

    def thaw(self, uid: str) -> None:
        """Thaw a pod. A pod that is gone is ignored. One that stays frozen raises CgroupError."""

    def frozen(self) -> frozenset[str]:
        """Return the uids of all frozen pods, whoever froze them."""
