"""Batch resources that could have been offered, the risk, and the distance to an oracle."""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from slacktide.schemas.policy import Policy
from slacktide.schemas.units import count
from slacktide.streams.analysis.assess.usage import (
    DAY_S,
    HOUR_S,
    Amounts,
    Matrix,
    Terms,
    Usage,
    block_s,
    future_max,
    offered,
    past_max,
    spread,
)
from slacktide.streams.decisions.resources.batch_resource import cpu_policy

LIFE_S = HOUR_S
"""Assumed run time of batch pods: pending ones always fill the offered amount."""
SATISFIED_PCT = 60
"""Batch pods with less of their requested CPU count as starved, unless the policy sets a bound."""
COVERED_MIN = 0.9
"""A step counts in sums if this share of the nodes was measured."""
HOT_MAX, POINTS_MAX = 10, 400
NO_POOL = "(none)"


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Cores or GiB available half of the time and 95% of it, each with ± of a 95% interval."""

    p50: float | None
    p50_spread: float | None
    p95: float | None
    p95_spread: float | None
    oracle_p50: float | None
    """The amount that an oracle, which knows the coming peak, would have offered half of the time."""
    oracle_share: float | None
    """Offered, as a share of the oracle's."""
    oversold_share: float | None
    """Share of node-hours with more offered than by the oracle."""


class PoolReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node pool, or the whole cluster."""

    name: str
    nodes: int
    capacity_cores: float
    requested_cores: float | None
    used_cores: float
    cpu: Amount
    memory: Amount
    measured_node_hours: float
    evicting_node_hours: float
    """Node-hours with memory evictions."""
    squeezed_node_hours: float
    """Node-hours with less CPU for batch pods than the policy's satisfaction bound."""


class HotNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node at risk."""

    node: str
    pool: str
    evicting_hours: float
    squeezed_hours: float
    hours_of_day: list[int]
    """The worst UTC hours, at most three, worst first."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster over time, in cores; None: too little was measured."""

    at_s: list[int]
    capacity: list[float | None]
    used: list[float | None]
    requested: list[float | None]
    sold: list[float | None]
    oracle: list[float | None]


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """The complete report."""

    start_s: int
    end_s: int
    step_s: int
    window_s: int
    horizon_s: int
    block_s: int
    policy_version: str
    covered_share: float
    cluster: PoolReport
    pools: list[PoolReport]
    hot_nodes: list[HotNode]
    evicting_by_hour: list[float]
    """Node-hours of memory evictions by UTC hour of the day."""
    squeezed_by_hour: list[float]
    curve: Curve
    findings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """Results for one resource."""

    amounts: Amounts
    offered: Matrix
    oracle: Matrix
    unit: float

    def total(self, values: Matrix, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the sum over nodes at each step, NaN if too few were measured."""
        there, known = ~np.isnan(self.amounts.capacity[rows]), self.amounts.known[rows]
        enough = known.sum(axis=0) >= np.maximum(1, COVERED_MIN * there.sum(axis=0))
        summed = np.nansum(np.where(known, values[rows], np.nan), axis=0) / self.unit
        total: NDArray[np.float64] = np.where(enough & ~np.isnan(values[rows]).all(axis=0), summed, np.nan)
        return total


def assess(usage: Usage, policy: Policy, *, horizon_s: int) -> Assessment:
    """Apply the cluster-wide strategies of a policy to recorded use, as if colocation were enabled."""
    colocation = policy.colocation
    steps = usage.cpu.capacity.shape[1]
    horizon = min(max(1, horizon_s // usage.step_s), max(1, steps // 2))
    cpu_terms = Terms(
        reclaim_pct=colocation.cpu_reclaim_threshold_pct,
        cap_pct=colocation.batch_cpu_threshold_pct,
        policy=cpu_policy(colocation),
    )
    mem_terms = Terms(
        reclaim_pct=colocation.mem_reclaim_threshold_pct,
        cap_pct=colocation.batch_mem_threshold_pct,
        policy=colocation.mem_calculate_policy,
    )
    cpu = _side(usage.cpu, cpu_terms, horizon, 1000)
    mem = _side(usage.mem, mem_terms, horizon, 2**30)
    life = max(1, LIFE_S // usage.step_s)
    evicting, squeezed = _evicting(mem, policy, life), _squeezed(cpu, policy, life)
    pool_of = [usage.pools.get(node, NO_POOL) for node in usage.nodes]
    names = sorted(set(pool_of))
    rows = {name: np.array([at for at, pool in enumerate(pool_of) if pool == name]) for name in names}

    def report(name: str, of: NDArray[np.intp]) -> PoolReport:
        return _pool(name, of, (cpu, mem), (evicting, squeezed), usage.step_s)

    everything = np.arange(len(usage.nodes))
    there, known = ~np.isnan(usage.cpu.capacity), usage.cpu.known & usage.mem.known
    covered = float(known.sum() / max(1, there.sum()))
    return Assessment(
        start_s=usage.start_s,
        end_s=usage.start_s + (steps - 1) * usage.step_s,
        step_s=usage.step_s,
        window_s=max(usage.window_s, usage.step_s),
        horizon_s=horizon * usage.step_s,
        block_s=block_s(steps, usage.step_s),
        policy_version=policy.version,
        covered_share=covered,
        cluster=report("cluster", everything),
        pools=[report(name, rows[name]) for name in names],
        hot_nodes=_hot(usage, pool_of, evicting, squeezed),
        evicting_by_hour=_by_hour(usage, evicting),
        squeezed_by_hour=_by_hour(usage, squeezed),
        curve=_curve(usage, cpu, everything),
        findings=_findings(usage, covered, horizon, horizon_s),
    )


def _side(amounts: Amounts, terms: Terms, horizon: int, unit: float) -> _Side:
    """Return the offered amount, and that of an oracle: capacity minus the coming peak (Bashir et al., EuroSys '21)."""
    kept = np.where(np.isnan(amounts.kept), 0, amounts.kept)
    oracle = np.maximum(amounts.capacity - future_max(kept + amounts.high_taken, horizon), 0)
    oracle[:, oracle.shape[1] - horizon :] = np.nan  # the horizon ends after the recording
    oracle = np.where(amounts.known, oracle, np.nan)
    return _Side(amounts=amounts, offered=offered(amounts, terms), oracle=oracle, unit=unit)


def _evicting(mem: _Side, policy: Policy, life: int) -> NDArray[np.bool_]:
    """Find steps above the memory eviction threshold, if batch pods use all of their requests."""
    threshold = policy.resource_threshold.mem_evict_threshold_pct
    if threshold is None:
        return np.zeros(mem.offered.shape, dtype=np.bool_)
    amounts = mem.amounts
    system = np.fmax(amounts.node_used - amounts.pods_used, 0)
    used = np.where(np.isnan(system), 0, system) + amounts.high_used + past_max(mem.offered, life)
    over: NDArray[np.bool_] = amounts.known & (used * 100 > threshold * amounts.capacity)
    return over


def _squeezed(cpu: _Side, policy: Policy, life: int) -> NDArray[np.bool_]:
    """Find steps where suppression reduces the CPU of batch pods below the satisfaction bound of their requests."""
    threshold = policy.resource_threshold
    bound = threshold.cpu_evict_be_satisfaction_lower_pct or SATISFIED_PCT
    amounts, running = cpu.amounts, past_max(cpu.offered, life)
    system = np.fmax(amounts.node_used - amounts.pods_used, 0)
    allowed = amounts.capacity * threshold.cpu_suppress_threshold_pct / 100 - amounts.high_taken
    allowed = np.maximum(allowed - np.where(np.isnan(system), 0, system), 0)
    short: NDArray[np.bool_] = amounts.known & (running > 0) & (allowed * 100 < bound * running)
    return short


def _pool(
    name: str,
    rows: NDArray[np.intp],
    sides: tuple[_Side, _Side],
    hurt: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    step_s: int,
) -> PoolReport:
    cpu, mem = sides
    hours = step_s / HOUR_S
    return PoolReport(
        name=name,
        nodes=len(rows),
        capacity_cores=_mean(cpu.total(cpu.amounts.capacity, rows)) or 0.0,
        requested_cores=_mean(cpu.total(cpu.amounts.requested, rows)),
        used_cores=_mean(cpu.total(cpu.amounts.high_used, rows)) or 0.0,
        cpu=_amount(cpu, rows, step_s),
        memory=_amount(mem, rows, step_s),
        measured_node_hours=float(cpu.amounts.known[rows].sum() * hours),
        evicting_node_hours=float(hurt[0][rows].sum() * hours),
        squeezed_node_hours=float(hurt[1][rows].sum() * hours),
    )


def _amount(side: _Side, rows: NDArray[np.intp], step_s: int) -> Amount:
    total = side.total(side.offered, rows)
    oracle = side.total(side.oracle, rows)
    compared = ~np.isnan(side.oracle[rows]) & ~np.isnan(side.offered[rows])
    ours, best = side.offered[rows][compared], side.oracle[rows][compared]
    p50_spread, p95_spread = spread(total, step_s, (0.5, 0.05))
    return Amount(
        p50=_quantile(total, 0.5),
        p50_spread=_figure(p50_spread),
        p95=_quantile(total, 0.05),
        p95_spread=_figure(p95_spread),
        oracle_p50=_quantile(oracle, 0.5),
        oracle_share=float(ours.sum() / best.sum()) if best.sum() > 0 else None,
        oversold_share=float((ours > best).mean()) if best.size else None,
    )


def _figure(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _quantile(values: NDArray[np.float64], at: float) -> float | None:
    return None if np.isnan(values).all() else float(np.nanquantile(values, at))


def _mean(values: NDArray[np.float64]) -> float | None:
    return None if np.isnan(values).all() else float(np.nanmean(values))


def _hours_of_day(usage: Usage) -> NDArray[np.int64]:
    at = usage.start_s + np.arange(usage.cpu.capacity.shape[1], dtype=np.int64) * usage.step_s
    hours: NDArray[np.int64] = at % DAY_S // HOUR_S
    return hours


def _by_hour(usage: Usage, hurt: NDArray[np.bool_]) -> list[float]:
    counted = np.bincount(_hours_of_day(usage), weights=hurt.sum(axis=0), minlength=24)
    return [float(one * usage.step_s / HOUR_S) for one in counted]


def _hot(usage: Usage, pools: list[str], evicting: NDArray[np.bool_], squeezed: NDArray[np.bool_]) -> list[HotNode]:
    """Sort nodes by eviction pressure, then by hours of little CPU."""
    by_step, hours = _hours_of_day(usage), usage.step_s / HOUR_S
    evicted, short = evicting.sum(axis=1), squeezed.sum(axis=1)
    order = sorted(range(len(pools)), key=lambda at: (-evicted[at], -short[at], usage.nodes[at]))
    found = []
    for at in order[:HOT_MAX]:
        if not evicted[at] and not short[at]:
            break
        counts = np.bincount(by_step, weights=evicting[at] if evicted[at] else squeezed[at], minlength=24)
        worst = [int(hour) for hour in np.argsort(-counts, kind="stable")[:3] if counts[hour]]
        found.append(
            HotNode(
                node=usage.nodes[at],
                pool=pools[at],
                evicting_hours=float(evicted[at] * hours),
                squeezed_hours=float(short[at] * hours),
                hours_of_day=worst,
            )
        )
    return found


def _curve(usage: Usage, cpu: _Side, rows: NDArray[np.intp]) -> Curve:
    steps = usage.cpu.capacity.shape[1]
    every = max(1, -(-steps // POINTS_MAX))

    def points(values: Matrix) -> list[float | None]:
        return [_figure(one) for one in cpu.total(values, rows)[::every]]

    return Curve(
        at_s=[usage.start_s + at * usage.step_s for at in range(0, steps, every)],
        capacity=points(cpu.amounts.capacity),
        used=points(cpu.amounts.high_used),
        requested=points(cpu.amounts.requested),
        sold=points(cpu.offered),
        oracle=points(cpu.oracle),
    )


def _findings(usage: Usage, covered: float, horizon: int, asked_s: int) -> list[str]:
    """Report gaps in the recording that affect the figures."""
    found = []
    if covered < 1:
        found.append(
            f"{1 - covered:.1%} of node steps are gaps. "
            f"Sums leave out steps with fewer than {COVERED_MIN:.0%} of nodes."
        )
    never = [node for at, node in enumerate(usage.nodes) if not usage.cpu.known[at].any()]
    if never:
        found.append(
            f"{count(len(never), 'node')} never measured, such as {never[0]}. Check that their kubelets are scraped."
        )
    if usage.implausible:
        found.append(
            f"{usage.implausible} node steps show a use above capacity and are left out. "
            "Check whether two jobs scrape cAdvisor."
        )
    if np.isnan(usage.cpu.node_used).all():
        found.append(
            'No series of the root group (id="/"). What the system uses beyond its reservation is not counted.'
        )
    if np.isnan(usage.cpu.requested).all():
        found.append("No series kube_pod_container_resource_requests. Requests are not shown.")
    if horizon * usage.step_s < asked_s:
        found.append(f"The recording is short: the oracle looks {horizon * usage.step_s / HOUR_S:.1f} h ahead.")
    return found
