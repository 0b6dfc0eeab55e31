"""How a strategy's value reads in front of an operator."""

from __future__ import annotations

import msgspec


def value_text(value: object) -> str:
    """As JSON writes it, without needless quotes; an unset one is a dash."""
    if value is None:
        return "-"
    return value if isinstance(value, str) and value else msgspec.json.encode(value).decode()
