"""Plans the writes that bind the best-effort cgroup to CPUs. Pure.

On v2 that is one write. On v1 a cgroup may only have CPUs of its parent, so all cgroups below are written: CPUs are
removed from the deepest first, and added to the highest first.

Container runtimes copy the parent's set, so most cgroups follow it. A cgroup keeps its own set while it fits. After
that it follows for good, so nothing is stored and no pod stays bound to a few CPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.plan import BEST_EFFORT_ITSELF, CPUSET_FILE, Write
from slacktide.streams.decisions.cpu_list import cpu_ranges

Cpus = frozenset[int]


def plan_cpuset_v2(wanted: Cpus) -> list[Write]:
    """Bind the best-effort cgroup. Cgroups below need no write."""
    return [_write(BEST_EFFORT_ITSELF, wanted)]


def plan_cpuset_v1(held: Mapping[PurePosixPath, Cpus], wanted: Cpus) -> list[Write]:
    """Plan the writes that bind the best-effort cgroup to ``wanted``, which is not empty.

    Each cgroup is first reduced to the CPUs that it keeps, then gets the new ones. A cgroup that keeps none gets the
    union of both sets first. Cgroups without CPUs are skipped.
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
