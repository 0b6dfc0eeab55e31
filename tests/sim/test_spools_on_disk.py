"""The same worlds with the spools that real agents have: databases, and a process killed within a transaction."""

import sqlite3
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from sim.doors import CrashError
from sim.world import Parts, World
from slacktide.agents.node.spool import DiskSpool
from testbed.rungs import NIGHTLY

WORLDS = 12 if NIGHTLY else 4


@dataclass(slots=True)
class OnDisk(Parts):
    """Each start of an agent opens its node's folder anew."""

    folder: Path = Path()
    opened: dict[str, DiskSpool] = field(default_factory=dict)

    def spool(self, node):
        if node in self.opened:
            self.opened[node].close()
        self.opened[node] = DiskSpool(self.folder / node)
        return self.opened[node]


@pytest.fixture
def folder():
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def test_no_outcome_is_lost_or_doubled_by_a_process_that_dies_while_it_writes(folder, monkeypatch):
    """Each statement of a spool is one more step at which the agent may die; what it has not committed is lost."""
    died = []

    class Dying(sqlite3.Connection):
        def execute(self, *args):
            perhaps_died(self)
            return super().execute(*args)

        def executemany(self, *args):
            perhaps_died(self)
            return super().executemany(*args)

    def perhaps_died(database):
        node = world.acting
        if node is not None and node.crash_in is not None:
            node.crash_in -= 1
            if node.crash_in <= 0:
                node.crash_in = None
                died.append(node.name)
                database.close()
                raise CrashError

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Dying))
    for seed in range(WORLDS):
        parts = OnDisk(folder=folder / str(seed))
        world = World(seed, parts)
        world.run()
        for spool in parts.opened.values():
            spool.close()

    assert len(died) >= WORLDS / 4
