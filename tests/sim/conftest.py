"""Worlds on demand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.trace import ComplaintError
from sim.world import Parts, World


@pytest.fixture
def complaint() -> Callable[..., str]:
    """Run worlds with these parts until a check complains, and say what it said."""

    def first_complaint(parts: Callable[[], Parts] = Parts, *, worlds: int = 80) -> str:
        for seed in range(worlds):
            try:
                World(seed, parts()).run()
            except ComplaintError as exc:
                return str(exc)
        return f"no complaint in {worlds} worlds"

    return first_complaint
