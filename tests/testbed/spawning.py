"""Programs as children that the kernel ends should this process vanish."""

import concurrent.futures
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

_SPAWNER = concurrent.futures.ThreadPoolExecutor(1)
"""The kernel ends a child with the thread that started it: one that lives as long as we do, whoever calls."""


def spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start it, its output added to a file.

    It has a session of its own: the kernel may share the cores by session, as it does by container in a cluster.
    """
    tied = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    with log.open("ab") as out:
        return _SPAWNER.submit(
            subprocess.Popen,
            [*tied, *command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        ).result()
