"""PURE: the allowance of best-effort pods, divided among them where a pod beside them must not be held.

A tier's quota holds all that is below it. Where a critical pod lives in the tier, each other pod is held by a quota of
its own instead: as much as its neighbours, or less where it has less by itself. The quotas sum to the allowance.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.plan import CPU_MAX_FILE, Bandwidth, Clipped, Plan, Write, cpu_max_text, owned
from slacktide.schemas.knob_table import QUOTA_US_MIN

PERIOD_US_MAX = 1_000_000
"""The kernel takes no longer one."""


def shares_of(allowance: Bandwidth, own: Mapping[PurePosixPath, Bandwidth]) -> dict[PurePosixPath, Bandwidth]:
    """What each pod may take; nothing where the allowance has no limit.

    Args:
        allowance: of all of them together.
        own: what each pod's group holds by somebody else's will, by its path.

    """
    if allowance.quota_us is None:
        return {}
    period_us, left_us = allowance.period_us, allowance.quota_us
    own_us = {path: _in_period(one, period_us) for path, one in own.items()}
    shares: dict[PurePosixPath, Bandwidth] = {}
    for place, path in enumerate(sorted(own, key=lambda path: (own_us[path], path))):
        equal_us = left_us // (len(own) - place)
        share_us = int(min(equal_us, own_us[path]))
        left_us -= share_us
        shares[path] = own[path] if own_us[path] <= equal_us else _taken(share_us, period_us)
    return shares


def plan_shares_v2(
    held: Mapping[PurePosixPath, Bandwidth],
    tier: Bandwidth,
    shares: Mapping[PurePosixPath, Bandwidth],
    clipped: Mapping[PurePosixPath, Clipped],
) -> Plan:
    """Plan the writes by which pods hold their shares, and those without a share what was their own.

    Args:
        held: what the best-effort group and the pods' groups hold.
        tier: what the best-effort group shall hold.
        shares: by ``shares_of``.
        clipped: what was remembered by earlier plans.

    """
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
    """What pods may take together in a period; None: one of them has no limit."""
    amounts = [_in_period(one, period_us) for one in parts.values()]
    return None if float("inf") in amounts else int(sum(amounts))


def _in_period(one: Bandwidth, period_us: int) -> float:
    return float("inf") if one.quota_us is None else one.quota_us * period_us // one.period_us


def _taken(share_us: int, period_us: int) -> Bandwidth:
    """As the kernel takes it: less than its smallest quota is that quota in a longer period."""
    if share_us >= QUOTA_US_MIN:
        return Bandwidth(share_us, period_us)
    stretched_us = PERIOD_US_MAX if share_us == 0 else -(-QUOTA_US_MIN * period_us // share_us)
    return Bandwidth(QUOTA_US_MIN, min(PERIOD_US_MAX, stretched_us))
