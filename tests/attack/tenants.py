"""Batch pods that fill the memory of virtual nodes: agents end their processes, and others come."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from testbed.background import Background
from testbed.one_machine import MEM_BYTES, VirtualNode, eventually
from testbed.spawning import spawn

EACH_S = 0.25
FILLS = 0.75
"""The part of a node's memory that such a pod takes: more than the policy leaves to all."""
PROCESS = ["sleep", "600"]


class Tenants(Background):
    """Each node has one such pod, with a real process. When that has ended the pod is gone, and the next one comes."""

    def __init__(self, nodes: Sequence[VirtualNode], folder: Path) -> None:
        super().__init__()
        self.gone = 0
        """Pods whose process was ended."""
        self._nodes, self._log = nodes, folder / "tenants.log"
        self._running: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
        """By node, its pod and the pod's process."""

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for _, process in self._running.values():
            process.kill()
            process.wait()

    def wait_evicted(self, within_s: float = 60.0) -> None:
        """Wait until one more is evicted.

        Raises:
            AssertionError: none is, in time.

        """
        before = self.gone
        assert eventually(lambda: self.gone > before, within_s), f"no pod is evicted within {within_s:g} s"

    def _run(self) -> None:
        while not self._over.wait(EACH_S):
            for node in self._nodes:
                name, process = self._running.get(node.name, ("", None))
                if process is None:
                    self._come(node)
                elif process.poll() is not None:
                    node.remove_batch(name)
                    del self._running[node.name]
                    self.gone += 1

    def _come(self, node: VirtualNode) -> None:
        name = f"tenant-{self.gone}"
        process = spawn(PROCESS, self._log)
        self._running[node.name] = name, process
        node.add_batch(name, mem_bytes=round(FILLS * MEM_BYTES), pid=process.pid)
