"""Formats the threshold and the observed value of an eviction."""

from __future__ import annotations

from slacktide.schemas.message import Terms


def observed(terms: Terms) -> str:
    """Format the observed value and its threshold; "" if the rule is unknown."""
    if "used_pct" in terms:
        return f"{terms['used_pct']:g}% used, threshold {terms['threshold_pct']:g}%"
    if "average_satisfied_ratio" in terms:
        ratio = 100 * terms["average_satisfied_ratio"]
        return f"{ratio:.0f}% of the requested CPU was had, threshold {terms['lower_pct']:g}%"
    for unit in ("milli", "bytes"):
        sold = terms.get(f"allocatable_{unit}")
        if sold is not None and f"requested_{unit}" in terms:
            share = f"{100 * terms[f'requested_{unit}'] / sold:.0f}%" if sold else "all, for none is sold,"
            return f"{share} of the batch allocatable was requested, threshold {terms['threshold_pct']:g}%"
    return ""
