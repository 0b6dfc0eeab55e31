"""Stores which knobs this agent has set, also in earlier runs, and when each is read back. Only these are restored."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from slacktide.agents.files import write_whole
from slacktide.agents.node.kernel import Held, Kernel
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.knob import KnobKey, container_of, uid_of
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on, cpu_burst_on, resource_qos_on
from slacktide.streams.decisions.burst.node_burst import BURST_RULE, QUOTA_RULE
from slacktide.streams.decisions.knobs import ISOLATION

log = logging.getLogger(__name__)
FILE = "knobs.json"


class Tuned:
    """The set knobs, in memory and, given a folder, on disk before one is set. Never raises.

    If the disk refuses, an agent does not restore knobs from before its restart.
    """

    def __init__(self, state_folder: Path | None = None) -> None:
        self._file = None if state_folder is None else state_folder / FILE
        self.keys: set[KnobKey] = self._load()

    def add(self, keys: Iterable[KnobKey]) -> None:
        """Record knobs that are about to be set."""
        self._keep(self.keys | set(keys))

    def drop(self, keys: Iterable[KnobKey]) -> None:
        """Remove knobs that are restored, or whose cgroups are gone."""
        self._keep(self.keys - set(keys))

    def _keep(self, keys: set[KnobKey]) -> None:
        if keys == self.keys:
            return
        self.keys = keys
        if self._file is None:
            return
        try:
            write_whole(self._file, msgspec.json.encode(sorted(keys)))
        except OSError as exc:
            log.warning("could not be stored for the next start", extra={"file": str(self._file), "why": str(exc)})

    def _load(self) -> set[KnobKey]:
        if self._file is None:
            return set()
        try:
            return set(msgspec.json.decode(self._file.read_bytes(), type=list[KnobKey]))
        except FileNotFoundError:
            return set()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as exc:
            log.warning("the stored state is lost", extra={"file": str(self._file), "why": str(exc)})
            return set()


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


QOS = frozenset({"CPUQOS", "MemoryQOS"})
BURSTS = frozenset({BURST_RULE, QUOTA_RULE})


def dry_run_families(facts: NodeFacts, policy: Policy) -> frozenset[str]:
    """Families of rules that only report on this node."""
    found: frozenset[str] = frozenset()
    if colocation_on(policy, facts).isolation_dry_run:
        found |= {ISOLATION}
    if resource_qos_on(policy, facts).dry_run:
        found |= QOS
    if cpu_burst_on(policy, facts).dry_run:
        found |= BURSTS
    return found


def family_of(rule: str) -> str:
    """Return a rule without its QoS class: ``MemoryQOS`` for ``MemoryQOS (beClass)``."""
    return rule.partition(" ")[0]
