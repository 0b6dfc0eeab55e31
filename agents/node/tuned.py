"""What the tuner remembers of knobs: which this agent has set, when each is read back, and which others set, too.

Only knobs that this agent has set, also in earlier runs, are restored. If another program sets the same value again
within a minute, or changes it a third time, that is a conflict. It is reported once, and the agent waits one minute,
then two, up to an hour, with one try after each. Refused writes are retried with growing pauses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from slacktide.agents.files import write_whole
from slacktide.agents.node.kernel import Held, Kernel
from slacktide.schemas.inventory import NodeFacts, Pod
from slacktide.schemas.knob import KnobKey, container_of, uid_of
from slacktide.schemas.policy import Policy
from slacktide.schemas.policy.effective import colocation_on, cpu_burst_on, resource_qos_on
from slacktide.streams.decisions.burst import cpu_burst_value, node_burst
from slacktide.streams.decisions.knobs import be_isolation

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
BURSTS = frozenset({cpu_burst_value.RULE, node_burst.RULE})


def dry_run_families(facts: NodeFacts, policy: Policy) -> frozenset[str]:
    """Families of rules that only report on this node."""
    found: frozenset[str] = frozenset()
    if colocation_on(policy, facts).isolation_dry_run:
        found |= {be_isolation.RULE}
    if resource_qos_on(policy, facts).dry_run:
        found |= QOS
    if cpu_burst_on(policy, facts).dry_run:
        found |= BURSTS
    return found


def family_of(rule: str) -> str:
    """Return a rule without its QoS class: ``MemoryQOS`` for ``MemoryQOS (beClass)``."""
    return rule.partition(" ")[0]


_SECOND_NS = 1_000_000_000
INSISTS_NS = 60 * _SECOND_NS
"""Changes within this time belong to one conflict."""
CHANGES_MAX = 2
"""This many changes within that time are set back."""
PAUSE_NS_MAX = 3_600 * _SECOND_NS
REFUSED_NS = 10 * _SECOND_NS
REFUSED_NS_MAX = 600 * _SECOND_NS
Move = Literal["set", "wait", "fight"]
"""``fight``: a conflict has just begun: report it and wait."""


@dataclass(slots=True)
class _Rival:
    left: int | None = None
    """The value that the agent left, once ``left_ns`` is set."""
    left_ns: int | None = None
    changed: bool = False
    """Whether the other program's last change is not set back yet."""
    value: int | None = None
    """The value that the other program last set."""
    changes: int = 0
    pause_ns: int = 0
    until_ns: int = 0
    fighting: bool = False


class Standoff:
    """All knobs that the agent has set."""

    def __init__(self) -> None:
        self._rivals: dict[KnobKey, _Rival] = {}

    def sees(self, key: KnobKey, held: int | None, now_ns: int) -> Move:
        """Return what to do now about a knob that holds an unwanted value."""
        rival = self._rivals.get(key)
        if rival is None:
            return "set"
        began = self._theirs(rival, held, now_ns)
        if now_ns < rival.until_ns:
            return "fight" if began else "wait"
        return "set"

    def pauses(self, key: KnobKey, now_ns: int) -> bool:
        """Return whether the agent backs off from it now."""
        rival = self._rivals.get(key)
        return rival is not None and now_ns < rival.until_ns

    def calm(self, key: KnobKey, now_ns: int) -> None:
        """Record that a knob holds the wanted value. After a minute a conflict is over."""
        rival = self._rivals.get(key)
        if rival is None:
            return
        rival.changed = False
        if rival.left_ns is not None and now_ns - rival.left_ns > INSISTS_NS:
            rival.changes, rival.pause_ns, rival.fighting = 0, 0, False

    def left(self, key: KnobKey, value: int | None, now_ns: int) -> None:
        """Record that the agent set it, and its value now."""
        rival = self._rivals.setdefault(key, _Rival())
        rival.left, rival.left_ns, rival.changed = value, now_ns, False
        if not rival.fighting:
            rival.pause_ns = 0

    def refused(self, key: KnobKey, now_ns: int) -> None:
        """Record that the kernel refused it: retry with growing pauses."""
        rival = self._rivals.setdefault(key, _Rival())
        rival.pause_ns = min(max(REFUSED_NS, rival.pause_ns * 2), REFUSED_NS_MAX)
        rival.until_ns = now_ns + rival.pause_ns

    def forget(self, of: Callable[[KnobKey], bool]) -> None:
        """Forget knobs with a new cgroup under the old name, or with a new wanted value."""
        self._rivals = {key: rival for key, rival in self._rivals.items() if not of(key)}

    def _theirs(self, rival: _Rival, held: int | None, now_ns: int) -> bool:
        """Count a change by the other program once. Return whether a conflict begins with it."""
        if rival.changed or rival.left_ns is None or held == rival.left:
            return False
        rival.changed = True
        soon = now_ns - rival.left_ns <= INSISTS_NS
        rival.changes = rival.changes + 1 if soon else 1
        again = soon and (rival.fighting or (rival.changes > 1 and held == rival.value) or rival.changes > CHANGES_MAX)
        rival.value = held
        if not again:
            rival.fighting, rival.pause_ns = False, 0
            return False
        first, rival.fighting = not rival.fighting, True
        rival.pause_ns = min(max(INSISTS_NS, rival.pause_ns * 2), PAUSE_NS_MAX)
        rival.until_ns = now_ns + rival.pause_ns
        return first
