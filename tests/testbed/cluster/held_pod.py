"""A batch pod that wants a whole CPU on a real node that allows best-effort pods less."""

import contextlib
import threading
from collections.abc import Iterator

from . import batch
from .installed import Installed

BATCH_CPU = "kubernetes.io/batch-cpu"
UNLIMITED_BYTES = 1 << 62
"""cgroup v1 rounds what is unlimited down to whole pages."""


class HeldPod:
    def __init__(self, slacktide: Installed) -> None:
        self.slacktide, node = slacktide, slacktide.node
        batch.set_policy(node, cpuSuppressPolicy="cfsQuota", cpuSuppressThresholdPercent=10)
        self.namespace = node.namespace("removal")
        node.wait(lambda: self.sold, "batch resources")
        batch.pod(node, self.namespace, "held", "burn", "spin", "1")
        node.wait(lambda: node.pods(self.namespace)[0]["status"]["phase"] == "Running", "the pod runs")
        [self.pod] = node.pods(self.namespace)
        node.wait(lambda: self.held, "the pod is held")

    @property
    def sold(self) -> bool:
        return BATCH_CPU in self.slacktide.node.get(f"/api/v1/nodes/{self.slacktide.node.name}")["status"]["capacity"]

    @property
    def held(self) -> bool:
        """Whether the tier and the pod have each of their limits."""
        return self.slacktide.node.best_effort_quota_us is not None and all(self._own())

    @property
    def free(self) -> bool:
        """Whether none of them is left."""
        return self.slacktide.node.best_effort_quota_us is None and not any(self._own())

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[tuple[bool, bool]]]:
        """Look ten times a second, until the block ends, whether it is held and the node sells."""
        seen: list[tuple[bool, bool]] = []
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.1):
                seen.append((self.held, self.sold))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield seen
        finally:
            over.set()
            looking.join()

    def _own(self) -> tuple[bool, bool]:
        node = self.slacktide.node
        quota_us = int((node.group("cpu", self.pod) / "cpu.cfs_quota_us").read_text())
        limit_bytes = int((node.group("memory", self.pod) / "memory.limit_in_bytes").read_text())
        return quota_us > 0, limit_bytes < UNLIMITED_BYTES
