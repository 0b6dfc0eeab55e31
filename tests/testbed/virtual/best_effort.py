"""Implements ``BestEffortPods`` of ``slacktide.agents.node.evict`` on a virtual machine. Pure."""

from collections.abc import Callable, Collection
from typing import NoReturn

from slacktide.agents.node.interfaces import ReclaimableMemory
from slacktide.deploy.virtual.machine import BEST_EFFORT, Group, Machine
from slacktide.schemas.errors import CgroupError


class NoReclaim:
    """Memory of a virtual machine, which has no page cache."""

    trouble = "a virtual machine has no memory.reclaim"

    def look(self, uids: Collection[str], now_ns: int) -> NoReturn:
        raise AssertionError(self.trouble)

    def reclaim(self, uid: str, ask_bytes: int, *, in_time: Callable[[], bool]) -> NoReturn:
        raise AssertionError(self.trouble)


class VirtualBestEffort:
    """Terminates, kills and freezes pods. A pod is one process, which ends after SIGTERM or only after SIGKILL."""

    freeze_trouble = ""
    memory: ReclaimableMemory = NoReclaim()

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def processes(self, uid: str) -> int:
        return 0 if self._pod(uid) is None else 1

    def terminate(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is not None:
            pod.frozen = False
            self._machine.terminate_pod(uid)

    def kill(self, uid: str) -> None:
        if self._pod(uid) is not None:
            self._machine.remove_pod(uid)

    def freeze(self, uid: str) -> bool:
        pod = self._pod(uid)
        if pod is None:
            raise CgroupError(uid, "the pod no longer exists")
        pod.frozen = True
        return True

    def thaw(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is not None:
            pod.frozen = False

    def frozen(self) -> frozenset[str]:
        return frozenset(pod.uid for pod in self._machine.best_effort.children if pod.frozen)

    def _pod(self, uid: str) -> Group | None:
        pod = self._machine.pods.get(uid)
        if pod is not None and not pod.path.startswith(f"{BEST_EFFORT}/"):
            raise CgroupError(pod.path, "not the cgroup of a best-effort pod: never changed")
        return pod
