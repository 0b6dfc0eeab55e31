"""Two lanes of tests side by side: what computes, and what waits for parts of this machine, each in its order."""

from __future__ import annotations

import os

from xdist.scheduler import LoadScopeScheduling

WAITING = (
    "tests/demo/",
    "tests/pipeline/",
    "tests/kernel/",
    "tests/cluster/e2e/",
    "tests/cluster/test_real_node.py",
    "tests/stack/",
)
"""Where tests stand that start groups of processes, set this kernel's control groups, or need a node: one at a time."""
LIGHT, NORMAL = 19, 0


class Lanes(LoadScopeScheduling):
    """Each lane is one process of tests: ``pytest -n 2``."""

    def _split_scope(self, nodeid: str) -> str:
        return "waiting" if nodeid.startswith(WAITING) else "computing"


def weigh(*, light: bool) -> None:
    """Beside the other lane, let what only computes wait for it. A weight once taken off only root can put back."""
    if "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, LIGHT if light else NORMAL)
