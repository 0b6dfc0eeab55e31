"""Describes a decision: cause, change and arithmetic. Pure."""

from __future__ import annotations

from slacktide.schemas.message import Terms
from slacktide.schemas.outcome import NodeOutcome
from slacktide.schemas.sample import Limits
from slacktide.streams.decisions.suppress.cpu_suppress import BY_QUOTA

MOVED_MILLI_MIN = 20
PLAIN = {"disabled": "the policy does not limit batch work", "restored": "the agent removed its limits"}


def because(outcome: NodeOutcome, ls_moved_milli: int | None = None) -> str:
    """Describe an applied outcome in one line.

    Args:
        outcome: with limits before and after, and terms.
        ls_moved_milli: change of the service's use since the previous sample; None: unknown.
    """
    moved = ""
    if ls_moved_milli is not None and abs(ls_moved_milli) >= MOVED_MILLI_MIN:
        moved = f"LS {ls_moved_milli:+d}m → "
    change = f"BE {limit_text(outcome.before)} → {limit_text(outcome.after)}"
    why = arithmetic(outcome.bound, outcome.terms)
    return f"{moved}{change}: {why}" if why else f"{moved}{change}"


def limit_text(limits: Limits | None) -> str:
    """Format a limit in millicores."""
    if limits is None:
        return "?"
    milli = limit_milli(limits)
    return "unlimited" if milli is None else f"{milli}m"


def limit_milli(limits: Limits) -> int | None:
    """Return a limit in millicores; None: unlimited."""
    quota_us = limits.be_cfs_quota_us
    return None if quota_us is None else quota_us * 1000 // limits.be_cfs_period_us


def arithmetic(bound: str, terms: Terms) -> str:
    """Return the rule's terms, and the step that determined the result."""
    if "ceiling_milli" not in terms:
        return PLAIN.get(bound, bound)
    host_milli = terms.get("nonbe_hosts_milli", 0)
    hosts = f" - hosts {host_milli}" if host_milli else ""
    text = f"ceiling {terms['ceiling_milli']} - LS {terms['nonbe_pods_milli']}{hosts} - system {terms['system_milli']}"
    if bound.removeprefix(BY_QUOTA) == "target":
        return text
    return f"{text} = {terms['formula_milli']}, {_fixed(bound, terms)}"


def _fixed(bound: str, terms: Terms) -> str:
    """Describe the bound that replaced the formula's result."""
    match bound.removeprefix(BY_QUOTA):
        case "stepped":
            step = _milli(terms["step_us_max"]) if "step_us_max" in terms else f"{terms['step_cpus']} CPUs"
            return f"at most +{step} per step"
        case "floored":
            lowest = _milli(terms["target_us"]) if "target_us" in terms else f"{terms['be_cpus']} CPUs"
            return f"at least {lowest}"
        case "minimum":
            return f"the policy's minimum is {terms['minimum_milli']}"
    return bound


def _milli(quota_us: float) -> str:
    return f"{quota_us * 1000 // 100_000:.0f}m"
