"""The same worlds with the spools that real agents have: files, and a process killed in the middle of a line."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sim.doors import CrashError
from sim.world import Parts, World
from slacktide.agents.node import intents, spool_files
from slacktide.agents.node.spool import DiskSpool

WORLDS = 12


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


def test_no_outcome_is_lost_or_doubled_by_a_torn_file(folder, monkeypatch):
    """Each line of a spool is one more step at which the agent may die, with a part of the line written."""
    torn = []
    write_line = spool_files.write_line

    def perhaps_torn(fd, line):
        node = world.acting
        if node is not None and node.crash_in is not None:
            node.crash_in -= 1
            if node.crash_in <= 0:
                node.crash_in = None
                os.write(fd, line[: world.rng.randrange(len(line))])
                torn.append(node.name)
                raise CrashError
        write_line(fd, line)

    for module in (spool_files, intents):
        monkeypatch.setattr(module, "write_line", perhaps_torn)
    for seed in range(WORLDS):
        parts = OnDisk(folder=folder / str(seed))
        world = World(seed, parts)
        world.run()
        for spool in parts.opened.values():
            spool.close()

    assert len(torn) >= WORLDS / 4
