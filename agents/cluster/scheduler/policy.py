"""Converts the policy's thresholds for the placement rules. Pure."""

from __future__ import annotations

from dataclasses import replace

from slacktide.schemas.policy.descheduling import UsagePercents
from slacktide.schemas.policy.placement import Placement
from slacktide.streams.decisions.load.load_aware_args import Factors, Percents
from slacktide.streams.decisions.load.pod_placement import PlacementArgs


def governed(args: PlacementArgs, policy: Placement, *, free_class_enable: bool = False) -> PlacementArgs:
    """Apply the policy's thresholds and factors, and whether free-tier pods use free resources."""
    prod = policy.prod_usage
    thresholds = replace(
        args.load.thresholds, usage=_percents(policy.usage), prod=None if prod == UsagePercents() else _percents(prod)
    )
    factors = Factors(policy.factors.cpu_pct, policy.factors.mem_pct)
    load = replace(args.load, thresholds=thresholds, factors=factors, free_class_enable=free_class_enable)
    return replace(args, load=load)


def _percents(given: UsagePercents) -> Percents:
    return Percents(given.cpu_pct or 0, given.mem_pct or 0)
