"""Formats values of strategies."""

from __future__ import annotations

import msgspec


def value_text(value: object) -> str:
    """Format a value as JSON, without needless quotes; unset: a dash."""
    if value is None:
        return "-"
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()
