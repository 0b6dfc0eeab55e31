"""Divides the CPU allowance among best-effort pods if a pod in their tier must not be limited. Pure.

A tier's quota limits all its pods. If a critical pod is among them, each other pod gets an equal share instead, or less
if its own quota is lower. The quotas sum to the allowance.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from slacktide.agents.node.cgroup.plan import CPU_MAX_FILE, Bandwidth, Clipped, Plan, Write, cpu_max_text, owned
from slacktide.schemas.knob_table import QUOTA_US_MIN

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
        shares[path] = own[path] if own_us[path] <= equal_us else _taken(share_us, period_us)
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


def _taken(share_us: int, period_us: int) -> Bandwidth:
    """Return a share as bandwidth. Below the kernel's smallest quota: that quota in a longer period."""
    if share_us >= QUOTA_US_MIN:
        return Bandwidth(share_us, period_us)
    stretched_us = PERIOD_US_MAX if share_us == 0 else -(-QUOTA_US_MIN * period_us // share_us)
    return Bandwidth(QUOTA_US_MIN, min(PERIOD_US_MAX, stretched_us))
