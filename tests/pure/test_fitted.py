"""Virtual nodes behave as real groups did: fitted to five recorded runs, checked by five others."""

import pytest

from testbed.fitted import FITTED, fit
from testbed.real_runs import CHECKS, FITS, Checked, check, recorded

TOLERANCE = 0.1
"""How far the core-hours of a virtual node may be from those of real processes."""


@pytest.fixture(scope="module")
def checked() -> list[Checked]:
    steps = recorded()
    return [check(steps, of_run) for of_run in CHECKS]


def test_virtual_nodes_have_what_the_fit_finds() -> None:
    """Each value to a tenth of its error between runs."""
    found = fit([step for step in recorded() if step.run in FITS])

    assert {name: one.value for name, one in found.items()} == {
        name: pytest.approx(getattr(FITTED, name), abs=one.error / 10 + 1e-4) for name, one in found.items()
    }
    assert min(one.count for one in found.values()) >= 5


def test_what_is_foretold_of_runs_that_were_not_fitted_comes_true_on_real_groups(checked: list[Checked]) -> None:
    inside = [one.choice.be_core_h.low <= one.core_h <= one.choice.be_core_h.high for one in checked]

    assert inside == [True] * len(CHECKS)
    assert [one for one in checked if not one.choice.evictions.low <= one.evictions <= one.choice.evictions.high] == []


def test_virtual_nodes_come_to_what_real_groups_did(checked: list[Checked]) -> None:
    assert [one.virtual_core_h for one in checked] == [pytest.approx(one.core_h, rel=TOLERANCE) for one in checked]
    assert abs(sum(one.virtual_evictions - one.evictions for one in checked)) <= len(CHECKS)
