"""Batch work: one process that uses a whole CPU, and holds data in memory if asked to.

``python -m slacktide.deploy.demo.busy [WANTED_MIB SHARE [LIMIT_FILE …]]``: it holds data up to WANTED_MIB, or up to the
limit of its pod, which is the smallest in these files, divided by SHARE processes. Without a limit in the files it
holds no data. Without files it is unlimited.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

MIB = 1 << 20
OWN_MIB = 12
"""Memory of the process itself."""
TURN_S = 0.2
GROWS_MIB = 16
"""The growth per step."""
OOM_SCORE_ADJ = "1000"
"""The kubelet's value for best-effort pods: the OOM killer selects these first."""
UNLIMITED_BYTES = 1 << 62
"""cgroup v1 has a number above this for no limit."""


def least(limits: Iterable[str]) -> int | None:
    """Return the smallest limit in bytes in these texts; None: there is none."""
    found = [int(limit) for limit in limits if limit.strip().isdigit()]
    return min((limit for limit in found if limit < UNLIMITED_BYTES), default=None)


def room_mib(limits: Iterable[str], share: int) -> int:
    """Return the MiB that one of ``share`` processes can hold under these limits; 0 without a limit."""
    return max(0, (least(limits) or 0) // share // MIB - OWN_MIB)


def main(wanted_mib: int = 0, share: int = 1, *, files: Sequence[Path] = ()) -> None:
    """Loop forever."""
    if wanted_mib:
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
    main(*map(int, sys.argv[1:3]), files=[Path(file) for file in sys.argv[3:]])
