"""The product's rooms, and which room imports which, read from the imports in the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

from generate.call_graph import Source

TOPOLOGY = "streams/topology.py"
"""A room of its own: it joins what the other files of ``streams`` serve."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """By room: the rooms that it imports."""

    imports: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, source: Source) -> Rooms:
        """Read the imports of all modules."""
        found: dict[str, set[str]] = {room_of(path): set() for path in source.paths.values()}
        for module, path in source.paths.items():
            its = (source.module_of(name) for name in source.imports(module))
            found[room_of(path)].update(room_of(source.paths[one]) for one in its)
        imported = set().union(*found.values())
        return cls({name: frozenset(its - {name}) for name, its in found.items() if its or name in imported})

    def levels(self) -> list[list[str]]:
        """Return the rooms in levels: each room above all that it imports. Raises CycleError for a circle."""
        depth: dict[str, int] = {}
        for room in TopologicalSorter(self.imports).static_order():
            depth[room] = 1 + max((depth[other] for other in self.imports.get(room, ())), default=-1)
        tops = reversed(range(max(depth.values()) + 1))
        return [sorted(room for room, at in depth.items() if at == level) for level in tops]

    def reduced(self) -> dict[str, frozenset[str]]:
        """Return the imports without those that follow from others."""
        return {room: its - frozenset().union(*map(self._below, its)) for room, its in self.imports.items()}

    def _below(self, room: str) -> frozenset[str]:
        its = self.imports.get(room, frozenset())
        return its.union(*map(self._below, its))


def room_of(path: Path) -> str:
    """Return the room of a file: its folder, at most two deep, and below ``agents/cluster`` three."""
    if path == Path(TOPOLOGY):
        return TOPOLOGY
    folders = path.parent.parts
    if folders[0] == "schemas":
        return "schemas"
    return "/".join(folders[: 3 if folders[:2] == ("agents", "cluster") else 2])
