"""PURE: from the CPUs that groups have to the writes that bind the best-effort group to others.

On v2 that is one write: groups below have what they ask for and the groups above have, too. On v1 a group may only have
CPUs of the group above it, so all below are written: where CPUs go, the deepest first; where they come, the highest.

Groups below mostly have the very set of the best-effort group: container runtimes copy it from above. They follow it. A
group with a set of its own keeps that while it fits; where it no longer does, it is given up for good and the group
follows, too: nothing is to be remembered, and nobody stays bound to a few CPUs after the limit is lifted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.plan import BEST_EFFORT_ITSELF, CPUSET_FILE, Write
from slacktide.streams.decisions.cpu_list import cpu_ranges

Cpus = frozenset[int]


def plan_cpuset_v2(wanted: Cpus) -> list[Write]:
    """Bind the best-effort group; what lies below needs no write."""
    return [_write(BEST_EFFORT_ITSELF, wanted)]


def plan_cpuset_v1(held: Mapping[PurePosixPath, Cpus], wanted: Cpus) -> list[Write]:
    """Plan the writes that bind the best-effort group to ``wanted``.

    On the way each group passes through what it has and shall have, and no CPU is added before
    those that go are gone; only where a group would be left without any, through both sets together.

    Args:
        held: CPUs of the best-effort group and of all groups below it, by path; one without any is left alone.
        wanted: what the best-effort group shall have; not empty.

    """
    now = {path: cpus for path, cpus in held.items() if cpus}
    whole = now[BEST_EFFORT_ITSELF]
    wish = {path: wanted if cpus == whole or not cpus <= wanted else cpus for path, cpus in now.items()}
    deep_first = sorted(now, key=lambda path: (-len(path.parts), path))
    if all(now[path] & wish[path] for path in now):
        between = {path: now[path] & wish[path] for path in now}
        return [*_moves(deep_first, now, between), *_moves(deep_first[::-1], between, wish)]
    between = {path: now[path] | wish[path] for path in now}
    return [*_moves(deep_first[::-1], now, between), *_moves(deep_first, between, wish)]


def _moves(
    order: Collection[PurePosixPath], now: Mapping[PurePosixPath, Cpus], then: Mapping[PurePosixPath, Cpus]
) -> list[Write]:
    return [_write(path, then[path]) for path in order if then[path] != now[path]]


def _write(group: PurePosixPath, cpus: Cpus) -> Write:
    return Write(group, CPUSET_FILE, cpu_ranges(cpus))
