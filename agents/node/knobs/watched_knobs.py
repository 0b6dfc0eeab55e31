"""Reads wanted knobs back: each cgroup every 20 seconds; new, recreated and drifted ones with the next sample."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from slacktide.agents.node.kernel import Held, Kernel
from slacktide.schemas.inventory import Pod
from slacktide.schemas.knob import KnobKey, container_of, uid_of

READ_NS = 20_000_000_000


class WatchedKnobs:
    """The wanted knobs of a node, by cgroup, and when each is read next."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._keys: Mapping[str, Sequence[KnobKey]] = {}
        self._order: Sequence[str] = []
        self._turn = 0
        self._read_ns: int | None = None
        self._made_of: dict[str, str] = {}
        self._soon: set[str] = set()

    def watch(self, keys: Iterable[KnobKey], known: Mapping[str, Pod], changed: Collection[str]) -> set[str]:
        """Watch these knobs; those in ``changed`` are read next. Return cgroups that are new or were recreated."""
        by_group: dict[str, list[KnobKey]] = {}
        for key in keys:
            by_group.setdefault(key.group, []).append(key)
        made_of = {group: _made_of(group, known) for group in by_group}
        fresh = {group for group, what in made_of.items() if self._made_of.get(group) != what}
        self._soon |= {*fresh, *changed} | {group for group, held in by_group.items() if held != self._keys.get(group)}
        self._keys, self._made_of, self._order = by_group, made_of, list(by_group)
        return fresh

    def read(self, now_ns: int, urgent: Collection[str]) -> Held:
        """Read the cgroups that are due, and urgent ones."""
        groups = dict.fromkeys([*(group for group in urgent if group in self._keys), *self._due(now_ns)])
        return self._kernel.held(key for group in groups for key in self._keys[group])

    def _due(self, now_ns: int) -> list[str]:
        since_ns = 0 if self._read_ns is None else now_ns - self._read_ns
        self._read_ns = now_ns
        count = min(len(self._order), -(-len(self._order) * since_ns // READ_NS))
        rotation = [self._order[(self._turn + number) % len(self._order)] for number in range(count)]
        self._turn = (self._turn + count) % max(1, len(self._order))
        soon, self._soon = self._soon & self._keys.keys(), set()
        return [*(group for group in self._order if group in soon), *rotation]


def _made_of(group: str, known: Mapping[str, Pod]) -> str:
    """Return the identity of a cgroup, which differs once it is recreated."""
    pod = known.get(uid_of(group))
    if pod is None:
        return ""
    name = container_of(group)
    return " ".join(one.id for one in pod.containers if not name or one.name == name)
