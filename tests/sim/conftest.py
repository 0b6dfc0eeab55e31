"""Worlds on demand."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.trace import ComplaintError
from sim.world import Parts, World

HERE = Path(__file__).parent

COMPUTES_S = 1_800
"""Worlds are counted, and each has its end: how long they take beside other work says nothing about them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give what only computes time."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COMPUTES_S))


@pytest.fixture
def complaint() -> Callable[..., str]:
    """Run worlds with these parts until a check complains; ``first`` is one that complained when last looked for."""

    def first_complaint(parts: Callable[[], Parts] = Parts, *, worlds: int = 80, first: int = 0) -> str:
        for seed in [first, *range(worlds)]:
            try:
                World(seed, parts()).run()
            except ComplaintError as exc:
                return str(exc)
        return f"no complaint in {worlds} worlds"

    return first_complaint
