"""Best-effort pods of a virtual machine, in memory: ``BestEffortPods`` of ``slacktide.agents.node.evict``. Pure."""

from __future__ import annotations

from slacktide.deploy.cli.virtual.machine import BEST_EFFORT, Group, Machine
from slacktide.schemas.errors import CgroupError


class VirtualBestEffort:
    """A pod is one process, which ends some time after it was asked, or never before it is killed."""

    freeze_trouble = ""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def processes(self, uid: str) -> int:
        """How many processes run in a pod; 0: the pod is gone.

        Raises:
            CgroupError: it is not a best-effort pod.

        """
        return 0 if self._pod(uid) is None else 1

    def terminate(self, uid: str) -> None:
        """Ask a pod to end; if it is frozen, it goes on to do so.

        Raises:
            CgroupError: it is not a best-effort pod.

        """
        pod = self._pod(uid)
        if pod is not None:
            pod.frozen = False
            self._machine.terminate_pod(uid)

    def kill(self, uid: str) -> None:
        """End a pod now.

        Raises:
            CgroupError: it is not a best-effort pod.

        """
        if self._pod(uid) is not None:
            self._machine.remove_pod(uid)

    def freeze(self, uid: str) -> bool:
        """Stop a pod.

        Raises:
            CgroupError: it is not a best-effort pod, or gone.

        """
        pod = self._pod(uid)
        if pod is None:
            raise CgroupError(uid, "the pod is gone")
        pod.frozen = True
        return True

    def thaw(self, uid: str) -> None:
        """Let a pod go on.

        Raises:
            CgroupError: it is not a best-effort pod.

        """
        pod = self._pod(uid)
        if pod is not None:
            pod.frozen = False

    def frozen(self) -> frozenset[str]:
        """Uids of the pods that are frozen."""
        return frozenset(pod.uid for pod in self._machine.best_effort.children if pod.frozen)

    def _pod(self, uid: str) -> Group | None:
        pod = self._machine.pods.get(uid)
        if pod is not None and not pod.path.startswith(f"{BEST_EFFORT}/"):
            raise CgroupError(pod.path, "not a best-effort pod's group: never touched")
        return pod
