"""Computes the CPU limit of best-effort pods, and the next CFS quota of their group toward it.

Reading: koordinator a7a1b76b, pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go, calculateBESuppressCPU,
adjustByCfsQuota. The order of the arithmetic follows the reference. The sums over pods and hosts are exact. Unlike the
reference, a small target is applied if no quota is set.
"""

from collections.abc import Collection
from math import fsum
from typing import NamedTuple

import msgspec

from slacktide.schemas.message import Terms


class CpuUse(NamedTuple):
    """Usage of a pod or host application in cores; None: no metric."""

    used_cores: float | None
    best_effort: bool


class Allowed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The allowed CPU; it may be negative."""

    allowed_milli: int
    bound: str
    """``formula``, or ``minimum`` where the policy's minimum percent holds."""
    terms: Terms


def be_allowed_cpu(
    *,
    capacity_milli: int,
    reserved_milli: int,
    node_used_cores: float,
    pods: Collection[CpuUse],
    threshold_pct: int,
    min_pct: int | None = None,
    hosts: Collection[CpuUse] = (),
) -> Allowed:
    """Compute capacity x threshold% - non-BE pods - non-BE host applications - system.

    System is the node usage outside pods and host applications, and at least the reservation.
    """
    pods_cores, pods_nonbe_cores = _sums(pods)
    hosts_cores, hosts_nonbe_cores = _sums(hosts)
    system_cores = max(node_used_cores - pods_cores - hosts_cores, reserved_milli / 1000)
    ceiling_milli = capacity_milli * threshold_pct // 100
    pods_milli, hosts_milli = int(pods_nonbe_cores * 1000), int(hosts_nonbe_cores * 1000)
    system_milli = int(system_cores * 1000)
    formula_milli = ceiling_milli - pods_milli - hosts_milli - system_milli
    terms: Terms = {
        "capacity_milli": capacity_milli,
        "threshold_pct": threshold_pct,
        "ceiling_milli": ceiling_milli,
        "nonbe_pods_milli": pods_milli,
        "nonbe_hosts_milli": hosts_milli,
        "system_milli": system_milli,
        "formula_milli": formula_milli,
    }
    if min_pct is not None and formula_milli < (minimum_milli := capacity_milli * min_pct // 100):
        return Allowed(allowed_milli=minimum_milli, bound="minimum", terms=terms | {"minimum_milli": minimum_milli})
    return Allowed(allowed_milli=formula_milli, bound="formula", terms=terms)


def _sums(uses: Collection[CpuUse]) -> tuple[float, float]:
    """Sum all, and non-best-effort, cores. A missing metric counts as 0."""
    if not uses:
        return 0.0, 0.0
    # fsum: the result does not depend on the order of pods.
    return fsum([used or 0.0 for used, _ in uses]), fsum([used or 0.0 for used, best_effort in uses if not best_effort])


PERIOD_US = 100_000
QUOTA_US_MIN = 2_000


class QuotaStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The quota to apply, per 100 ms period."""

    quota_us: int
    bound: str
    """``target``, ``floored``, ``stepped`` (a raise is limited to 10% of the node) or ``bypassed``."""
    terms: Terms


def next_cfs_quota(*, allowed_milli: int, current_us: int | None, capacity_milli: int) -> QuotaStep:
    """Compute one step toward the allowed CPU: up by at most 10% of the node, down at once. A None is unlimited."""
    node_us = -(-capacity_milli // 1000) * PERIOD_US
    target_us = max(allowed_milli * PERIOD_US // 1000, QUOTA_US_MIN)
    terms: Terms = {"allowed_milli": allowed_milli, "target_us": target_us}
    if current_us is None:
        return QuotaStep(quota_us=target_us, bound="floored" if target_us == QUOTA_US_MIN else "target", terms=terms)
    terms["current_us"] = current_us
    if abs(target_us - current_us) < node_us * 0.01 and target_us != QUOTA_US_MIN:
        return QuotaStep(quota_us=current_us, bound="bypassed", terms=terms | {"bypass_below_us": int(node_us * 0.01)})
    if target_us - current_us > node_us * 0.1:
        step_us = int(node_us * 0.1)
        return QuotaStep(quota_us=current_us + step_us, bound="stepped", terms=terms | {"step_us_max": step_us})
    return QuotaStep(quota_us=target_us, bound="floored" if target_us == QUOTA_US_MIN else "target", terms=terms)
