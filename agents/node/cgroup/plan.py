"""PURE: from what the groups hold to the writes that make the best-effort group hold a limit.

On v2 that is one write. On v1 no group may hold more than the nearest limited group above it (EINVAL), so groups below
the best-effort group are cut to fit before it is cut, the deepest first, and get back what was theirs after it
is raised, the highest first. Stopped anywhere, a cut has loosened nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from slacktide.schemas.knob_table import QUOTA_US_MIN

BEST_EFFORT_ITSELF = PurePosixPath()
QUOTA_FILE = "cpu.cfs_quota_us"
PERIOD_FILE = "cpu.cfs_period_us"
CPU_MAX_FILE = "cpu.max"
CPUSET_FILE = "cpuset.cpus"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """CPU time that a group may take in each period."""

    quota_us: int | None
    """None: unlimited."""
    period_us: int

    def within(self, other: Bandwidth) -> bool:
        """Whether it gives no more CPU than ``other``."""
        if other.quota_us is None:
            return True
        return self.quota_us is not None and self.quota_us * other.period_us <= other.quota_us * self.period_us


@dataclass(frozen=True, slots=True)
class Write:
    """One text into one control file."""

    group: PurePosixPath
    """Relative to the best-effort group."""
    file: str
    text: str


@dataclass(frozen=True, slots=True)
class Clipped:
    """A group below the best-effort group that was cut to fit."""

    own: Bandwidth
    """What it held by somebody else's will, and gets back."""
    ours: tuple[Bandwidth, ...]
    """What our writes can have left there; whatever else it holds is somebody's will again."""
    share: bool = False
    """It holds its share of the allowance, for the best-effort group holds nobody."""


Shares = Mapping[PurePosixPath, Bandwidth]
"""What pods' groups shall hold at most, by path."""
NO_SHARES: Shares = {}


@dataclass(frozen=True, slots=True)
class Plan:
    """Writes in their order, and what to remember before the first and after the last of them."""

    writes: list[Write]
    before: dict[PurePosixPath, Clipped]
    after: dict[PurePosixPath, Clipped]


def plan_v2(held: Bandwidth, wanted: Bandwidth) -> list[Write]:
    """One file holds quota and period, and groups below may hold what they like: the tightest counts."""
    if held == wanted:
        return []
    return [Write(BEST_EFFORT_ITSELF, CPU_MAX_FILE, cpu_max_text(wanted))]


def cpu_max_text(wanted: Bandwidth) -> str:
    """What is written to ``cpu.max``."""
    return f"{'max' if wanted.quota_us is None else wanted.quota_us} {wanted.period_us}"


def plan_v1(
    held: Mapping[PurePosixPath, Bandwidth],
    wanted: Bandwidth,
    clipped: Mapping[PurePosixPath, Clipped],
    shares: Shares = NO_SHARES,
) -> Plan:
    """Plan the writes that make the best-effort group hold ``wanted``.

    Args:
        held: the best-effort group's bandwidth and that of groups below it, by path. A group left out is
            taken to be in nobody's way; if it is, the kernel refuses the plan with EINVAL.
        wanted: what the best-effort group shall hold.
        clipped: what was remembered by earlier plans.
        shares: what pods' groups shall hold at most, below a best-effort group without limit.

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
    """Plan the writes that make ``wanted`` a lower group's own: it holds that, or as much of it as fits just now.

    Args:
        held: as in ``plan_v1``, of the group, all above it and all below it.
        group: below the best-effort group.
        wanted: what it shall hold where nothing above it is in the way, in the period that it has by itself.
        clipped: what was remembered by earlier plans; of groups that are not in ``held`` it stays.
        shares: as in ``plan_v1``.

    """
    ours, own = owned(held, clipped)
    own[group] = wanted
    seen = ours[group].ours if group in ours else (held[group],)
    plan = _plan(held, own, iter((held[BEST_EFFORT_ITSELF],)), ours | {group: Clipped(wanted, seen)}, shares)
    others = {path: known for path, known in clipped.items() if path not in held}
    before = others | plan.before
    if group not in ours and group not in plan.after:  # all of it fits: nothing to give back, were it cut short
        del before[group]
    return Plan(plan.writes, before, others | plan.after)


def owned(
    held: Mapping[PurePosixPath, Bandwidth], clipped: Mapping[PurePosixPath, Clipped]
) -> tuple[dict[PurePosixPath, Clipped], dict[PurePosixPath, Bandwidth]]:
    """The groups that are still as we cut them, and what each group holds by somebody's will."""
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
    """What the groups will hold after the writes so far."""

    held: dict[PurePosixPath, Bandwidth]
    writes: list[Write] = field(default_factory=list)
    seen: dict[PurePosixPath, list[Bandwidth]] = field(default_factory=dict)

    def move(self, path: PurePosixPath, to: Bandwidth) -> None:
        """Write quota and period in the order in which neither write loosens a cut nor overshoots a raise."""
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
                text = "-1" if value.quota_us is None else str(value.quota_us)
                self.writes.append(Write(path, QUOTA_FILE, text))
            self.held[path] = value
            self.seen.setdefault(path, []).append(value)


def _route(now: Bandwidth, wanted: Bandwidth) -> Iterator[Bandwidth]:
    """The way from one to the other on which each write is a cut, then each a raise: through the tighter of both."""
    if now.quota_us is not None and wanted.quota_us is not None:
        low = Bandwidth(min(now.quota_us, wanted.quota_us), max(now.period_us, wanted.period_us))
        if low not in {now, wanted}:
            yield low
    yield wanted


def _settle(model: _Model, own: Mapping[PurePosixPath, Bandwidth], target: Bandwidth, shares: Shares) -> None:
    """Bring the best-effort group to ``target``, and each group below to its share, its own or what fits."""
    wish = {BEST_EFFORT_ITSELF: target}
    down = sorted((path for path in own if path.parts), key=lambda path: (len(path.parts), path))
    for path in down:
        wish[path] = _fit(shares.get(path, own[path]), _limit_above(path, wish))
    for path in reversed(down):
        now, limit = model.held[path], _limit_above(path, wish)
        if not now.within(wish[path]):
            model.move(path, wish[path])
        elif now.quota_us is not None and not now.within(limit):  # a share that was, below a limit that comes
            model.move(path, _fit(now, limit))
    model.move(BEST_EFFORT_ITSELF, target)
    for path in down:
        model.move(path, wish[path])


def _limit_above(path: PurePosixPath, wish: Mapping[PurePosixPath, Bandwidth]) -> Bandwidth:
    """What the nearest limited group above will hold; on v1 an unlimited group passes its parent's limit on."""
    for above in path.parents:
        limit = wish.get(above)
        if limit is not None and limit.quota_us is not None:
            return limit
    return wish[BEST_EFFORT_ITSELF]


def _fit(own: Bandwidth, limit: Bandwidth) -> Bandwidth:
    """Its own, or the most in its own period that is within ``limit``.

    Where that would be less than the kernel takes, the smallest quota in a longer period.
    """
    if own.quota_us is None or limit.quota_us is None or own.within(limit):
        return own
    quota_us = limit.quota_us * own.period_us // limit.period_us
    if quota_us >= QUOTA_US_MIN:
        return Bandwidth(quota_us, own.period_us)
    return Bandwidth(QUOTA_US_MIN, -(-QUOTA_US_MIN * limit.period_us // limit.quota_us))
