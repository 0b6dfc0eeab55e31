"""Formats a figure with the unit from its name."""

from __future__ import annotations

from slacktide.streams.explain.selling import amount


def shown(value: int, figure: str) -> str:
    """Format as ``1,500m``, ``512 MiB``, ``12‰``, ``0.25%`` (from hundredths of a percent) or ``8 ms``."""
    if figure.endswith(("_milli", "_bytes")):
        return amount(value, figure)
    if figure.endswith("_permille"):
        return f"{value:,}‰"
    if figure.endswith(("_some", "_full")):
        return f"{value / 100:,.2f}%"
    return f"{value:,} ms" if figure.endswith("_ms") else f"{value:,}"
