"""Batch work that keeps data in memory: as much as it wants, or as its pod's limit leaves.

``python -m slacktide.deploy.cli.demo.keeper WANTED_MIB SHARE [LIMIT_FILE …]``: it may use the smallest limit in these
files, divided by SHARE processes, and keeps nothing until there is one. Without files nothing limits it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

MIB = 1 << 20
OWN_MIB = 12
"""What such a process needs beside what it keeps."""
TURN_S = 0.2
GROWS_MIB = 16
"""In a turn."""
OOM_SCORE_ADJ = "1000"
"""As the kubelet sets it for best-effort pods: if memory runs out, these go first."""
UNLIMITED_BYTES = 1 << 62
"""cgroup v1 writes a figure above this where there is no limit."""


def least(limits: Iterable[str]) -> int | None:
    """The smallest limit in bytes of some files' texts; None: there is none."""
    found = [int(limit) for limit in limits if limit.strip().isdigit()]
    return min((limit for limit in found if limit < UNLIMITED_BYTES), default=None)


def room_mib(limits: Iterable[str], share: int) -> int:
    """What one of ``share`` processes can keep under these limits; 0 without one."""
    return max(0, (least(limits) or 0) // share // MIB - OWN_MIB)


def main(wanted_mib: int, share: int, files: list[Path]) -> None:
    """Work without end."""
    Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJ)
    kept: list[bytearray] = []
    while True:
        until_s = time.monotonic() + TURN_S
        while time.monotonic() < until_s:
            sum(range(1000))
        room = room_mib((file.read_text() for file in files), share) if files else wanted_mib
        goal = min(wanted_mib, room)
        del kept[goal:]
        kept += [bytearray(b"x") * MIB for _ in range(min(GROWS_MIB, goal - len(kept)))]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), [Path(file) for file in sys.argv[3:]])
