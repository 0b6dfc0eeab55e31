"""Two lanes of tests side by side, each in its order: what computes and then Kubernetes', and what mostly waits."""

from __future__ import annotations

import os

from xdist.scheduler import LoadScopeScheduling

WAITING = ("tests/demo/", "tests/pipeline/", "tests/kernel/", "tests/attack/", "tests/stack/", "tests/browser/")
"""Where tests stand that mostly wait. They are done when the other lane comes to the real node, whose tests ask who
gets how much of the processor."""
LIGHT, NORMAL = 19, 0


class Lanes(LoadScopeScheduling):
    """Each lane is one process of tests: ``pytest -n 2``."""

    def _split_scope(self, nodeid: str) -> str:
        return "waiting" if nodeid.startswith(WAITING) else "the others"


def weigh(*, light: bool) -> None:
    """Beside the other lane, let what only computes wait for it. A weight once taken off only root can put back."""
    if "PYTEST_XDIST_WORKER" in os.environ and os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, LIGHT if light else NORMAL)
