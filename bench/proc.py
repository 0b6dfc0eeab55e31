"""A /proc in which the machine's CPU use is that of the bench's own groups alone.

The limit answers to all that runs on a machine, as it shall. What is measured is how it answers to the service, so
the brokers, the worker and whoever shares the machine must not move it meanwhile. All else is the machine's own.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

TICK_S = 0.005
JIFFIES_PER_S = 100
INIT = "1"
"""The process by which koordlet knows the machine's namespaces."""


class OwnProc:
    """Keeps ``stat`` in a folder up to date; the rest are links to the real one."""

    def __init__(self, folder: Path, used_s: Callable[[], float]) -> None:
        self.folder = folder
        self._used_s = used_s
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="proc", daemon=True)

    def __enter__(self) -> Self:
        self.folder.mkdir()
        for one in Path("/proc").iterdir():
            if one.name == INIT or not (one.name.isdigit() or one.name == "stat"):
                (self.folder / one.name).symlink_to(one)
        self._write()
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._keeper.join()

    def _keep(self) -> None:
        while not self._stop.wait(TICK_S):
            self._write()

    def _write(self) -> None:
        new = self.folder / "stat.new"
        new.write_text(f"cpu  {round(self._used_s() * JIFFIES_PER_S)} 0 0 0 0 0 0 0 0 0\n")
        new.replace(self.folder / "stat")
