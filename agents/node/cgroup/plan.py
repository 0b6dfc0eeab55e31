"""Plans the writes that set a CPU quota or a CPU set on the best-effort cgroup. Pure.

On v2 that is one write. On v1 no cgroup may exceed its nearest limited parent (EINVAL). So before a cut, cgroups below
are cut to fit, the deepest first. After a raise, they are restored, the highest first. A cut that stops half-way has
loosened nothing.

A tier's quota limits all its pods. If a critical pod is among them, each other pod gets an equal share instead, or less
if its own quota is lower. The quotas sum to the allowance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from slacktide.schemas.knob_table import QUOTA_US_MIN
from slacktide.streams.decisions.cpu_list import cpu_ranges

BEST_EFFORT_ITSELF = PurePosixPath()
QUOTA_FILE = "cpu.cfs_quota_us"
PERIOD_FILE = "cpu.cfs_period_us"
CPU_MAX_FILE = "cpu.max"
CPUSET_FILE = "cpuset.cpus"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """CPU time per period of a cgroup."""

    quota_us: int | None
    period_us: int

    def within(self, other: Bandwidth) -> bool:
        """Return whether it gives no more CPU than ``other``."""
        if other.quota_us is None:
            return True
        return self.quota_us is not None and self.quota_us * other.period_us <= other.quota_us * self.period_us


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one control file."""

    group: PurePosixPath
    """Relative to the best-effort cgroup."""
    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Clipped:
    """A cgroup below the best-effort cgroup that was cut to fit."""

    own: Bandwidth
    """Its original value, to be restored."""
    ours: tuple[Bandwidth, ...]
    """Values that the agent's writes may have left. Any other value was set by another program."""
    share: bool = False
    """It has a share of the allowance, while the best-effort cgroup has no quota."""


Shares = Mapping[PurePosixPath, Bandwidth]
NO_SHARES: Shares = {}


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes in order, and the cut cgroups to store before the first and after the last write."""

    writes: list[Write]
    before: dict[PurePosixPath, Clipped]
    after: dict[PurePosixPath, Clipped]


def plan_v2(held: Bandwidth, wanted: Bandwidth) -> list[Write]:
    """On v2 one file has quota and period, and cgroups below may have any quota: the tightest counts."""
    if held == wanted:
        return []
    return [Write(BEST_EFFORT_ITSELF, CPU_MAX_FILE, cpu_max_text(wanted))]


def cpu_max_text(wanted: Bandwidth) -> str:
    """Return the text for ``cpu.max``."""
    return f"{'max' if wanted.quota_us is None else wanted.quota_us} {wanted.period_us}"


def quota_text(wanted: Bandwidth) -> str:
    """Return the text for ``cpu.cfs_quota_us``."""
    return "-1" if wanted.quota_us is None else str(wanted.quota_us)


def plan_v1(
    held: Mapping[PurePosixPath, Bandwidth],
    wanted: Bandwidth,
    clipped: Mapping[PurePosixPath, Clipped],
    shares: Shares = NO_SHARES,
) -> Plan:
    """Plan the writes that set ``wanted`` on the best-effort cgroup.

    Cgroups not in ``held`` are assumed to fit; otherwise the kernel refuses the plan with EINVAL. ``clipped`` is from
    earlier plans. ``shares`` has upper limits of pods' cgroups, if the best-effort cgroup has no limit.
    """
    ours, own = owned(held, clipped)
    return _plan(held, own, _route(held[BEST_EFFORT_ITSELF], wanted), ours, shares)


def plan_own_v1(
    held: Mapping[PurePosixPath, Bandwidth],
    group: PurePosixPath,
    wanted: Bandwidth,
    clipped: Mapping[PurePosixPath, Clipped],
    shares: Shares = NO_SHARES,
) -> Plan:
    """Plan the writes that set ``wanted`` as a lower cgroup's own bandwidth, cut to what fits now.

    ``held`` has the cgroup, all its parents and all cgroups below it. Entries of ``clipped`` not in ``held`` are kept.
    """
    ours, own = owned(held, clipped)
    own[group] = wanted
    seen = ours[group].ours if group in ours else (held[group],)
    plan = _plan(held, own, iter((held[BEST_EFFORT_ITSELF],)), ours | {group: Clipped(wanted, seen)}, shares)
    others = {path: known for path, known in clipped.items() if path not in held}
    before = others | plan.before
    if group not in ours and group not in plan.after:  # all of it fits: nothing to restore if the plan stops half-way
        del before[group]
    return Plan(plan.writes, before, others | plan.after)


def owned(
    held: Mapping[PurePosixPath, Bandwidth], clipped: Mapping[PurePosixPath, Clipped]
) -> tuple[dict[PurePosixPath, Clipped], dict[PurePosixPath, Bandwidth]]:
    """Return the cgroups that are still cut by the agent, and the own bandwidth of each cgroup."""
    ours = {path: known for path, known in clipped.items() if held.get(path) in known.ours}
    return ours, {path: ours[path].own if path in ours else now for path, now in held.items()}


def _plan(
    held: Mapping[PurePosixPath, Bandwidth],
    own: Mapping[PurePosixPath, Bandwidth],
    route: Iterator[Bandwidth],
    ours: dict[PurePosixPath, Clipped],
    shares: Shares,
) -> Plan:
    model = _Model(dict(held))
    for step in route:
        _settle(model, own, step, shares)
    moved = {
        path: Clipped(own[path], (held[path], *seen), path in shares) for path, seen in model.seen.items() if path.parts
    }
    before = ours | moved
    after = {
        path: Clipped(own[path], (model.held[path],), path in shares)
        for path in before
        if model.held[path] != own[path]
    }
    return Plan(model.writes, before, after)


@dataclass(slots=True)
class _Model:
    held: dict[PurePosixPath, Bandwidth]
    writes: list[Write] = field(default_factory=list)
    seen: dict[PurePosixPath, list[Bandwidth]] = field(default_factory=dict)

    def move(self, path: PurePosixPath, to: Bandwidth) -> None:
        """Write quota and period in an order that neither loosens a cut nor overshoots a raise."""
        now = self.held[path]
        cut = to.within(now)
        between = Bandwidth(now.quota_us, to.period_us) if cut else Bandwidth(to.quota_us, now.period_us)
        for value in (between, to):
            last = self.held[path]
            if value == last:
                continue
            if value.period_us != last.period_us:
                self.writes.append(Write(path, PERIOD_FILE, str(value.period_us)))
            else:
                self.writes.append(Write(path, QUOTA_FILE, quota_text(value)))
            self.held[path] = value
            self.seen.setdefault(path, []).append(value)


def _route(now: Bandwidth, wanted: Bandwidth) -> Iterator[Bandwidth]:
    """The steps from one to the other, through the tighter of both: cuts first, then raises."""
    if now.quota_us is not None and wanted.quota_us is not None:
        low = Bandwidth(min(now.quota_us, wanted.quota_us), max(now.period_us, wanted.period_us))
        if low not in {now, wanted}:
            yield low
    yield wanted


def _settle(model: _Model, own: Mapping[PurePosixPath, Bandwidth], target: Bandwidth, shares: Shares) -> None:
    """Bring the best-effort cgroup to ``target``, and each cgroup below to its share, its own or what fits."""
    wish = {BEST_EFFORT_ITSELF: target}
    down = sorted((path for path in own if path.parts), key=lambda path: (len(path.parts), path))
    for path in down:
        wish[path] = _fit(shares.get(path, own[path]), _limit_above(path, wish))
    for path in reversed(down):
        now, limit = model.held[path], _limit_above(path, wish)
        if not now.within(wish[path]):
            model.move(path, wish[path])
        elif now.quota_us is not None and not now.within(limit):  # a former share below a new limit
            model.move(path, _fit(now, limit))
    model.move(BEST_EFFORT_ITSELF, target)
    for path in down:
        model.move(path, wish[path])


def _limit_above(path: PurePosixPath, wish: Mapping[PurePosixPath, Bandwidth]) -> Bandwidth:
    """Return the limit of the nearest limited parent. On v1 an unlimited cgroup inherits its parent's limit."""
    for above in path.parents:
        limit = wish.get(above)
        if limit is not None and limit.quota_us is not None:
            return limit
    return wish[BEST_EFFORT_ITSELF]


def _fit(own: Bandwidth, limit: Bandwidth) -> Bandwidth:
    """Return the most of ``own`` within ``limit``; below the kernel's smallest quota: that quota in a longer period."""
    if own.quota_us is None or limit.quota_us is None or own.within(limit):
        return own
    quota_us = limit.quota_us * own.period_us // limit.period_us
    if quota_us >= QUOTA_US_MIN:
        return Bandwidth(quota_us, own.period_us)
    return Bandwidth(QUOTA_US_MIN, -(-QUOTA_US_MIN * limit.period_us // limit.quota_us))


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


PERIOD_US_MAX = 1_000_000
"""The kernel's longest period."""


def shares_of(allowance: Bandwidth, own: Mapping[PurePosixPath, Bandwidth]) -> dict[PurePosixPath, Bandwidth]:
    """Compute the share of each pod, by the path of its cgroup; empty if the allowance has no limit."""
    if allowance.quota_us is None:
        return {}
    period_us, left_us = allowance.period_us, allowance.quota_us
    own_us = {path: _in_period(one, period_us) for path, one in own.items()}
    shares: dict[PurePosixPath, Bandwidth] = {}
    for place, path in enumerate(sorted(own, key=lambda path: (own_us[path], path))):
        equal_us = left_us // (len(own) - place)
        share_us = int(min(equal_us, own_us[path]))
        left_us -= share_us
        if own_us[path] <= equal_us:
            shares[path] = own[path]
        elif share_us >= QUOTA_US_MIN:
            shares[path] = Bandwidth(share_us, period_us)
        else:  # the kernel's smallest quota in a longer period
            stretched_us = PERIOD_US_MAX if share_us == 0 else -(-QUOTA_US_MIN * period_us // share_us)
            shares[path] = Bandwidth(QUOTA_US_MIN, min(PERIOD_US_MAX, stretched_us))
    return shares


def plan_shares_v2(
    held: Mapping[PurePosixPath, Bandwidth],
    tier: Bandwidth,
    shares: Mapping[PurePosixPath, Bandwidth],
    clipped: Mapping[PurePosixPath, Clipped],
) -> Plan:
    """Plan the writes that set shares, and restore the own bandwidth of pods without a share."""
    ours, own = owned(held, clipped)
    wish = {path: shares.get(path, own[path]) if path.parts else tier for path in held}
    moved = [path for path in held if held[path] != wish[path]]
    cuts = [path for path in moved if wish[path].within(held[path])]
    raises = [path for path in moved if path not in cuts]
    writes = [Write(path, CPU_MAX_FILE, cpu_max_text(wish[path])) for path in (*cuts, *raises)]
    before = ours | {path: Clipped(own[path], (held[path], wish[path]), path in shares) for path in moved if path.parts}
    after = {path: Clipped(own[path], (wish[path],), path in shares) for path in before if wish[path] != own[path]}
    return Plan(writes, before, after)


def total(parts: Mapping[PurePosixPath, Bandwidth], period_us: int) -> int | None:
    """Return the sum of quotas in a period; None: one has no limit."""
    amounts = [_in_period(one, period_us) for one in parts.values()]
    return None if float("inf") in amounts else int(sum(amounts))


def _in_period(one: Bandwidth, period_us: int) -> float:
    return float("inf") if one.quota_us is None else one.quota_us * period_us // one.period_us
