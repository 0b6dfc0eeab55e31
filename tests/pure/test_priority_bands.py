"""Which class a priority is of: one of four bands, or none in the gaps between them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import BANDS, band_of, effective_priority_class


@given(st.integers(-(2**31), 2**31 - 1) | st.integers(2_900, 10_100))
def test_each_priority_is_of_one_class_or_of_none(priority: int) -> None:
    of = [name for name, (low, high) in BANDS.items() if low <= priority <= high]

    assert len(of) <= 1
    assert band_of(priority) == "".join(of)


@pytest.mark.parametrize(
    ("priority", "name"),
    [
        (2_999, ""), (3_000, "koord-free"), (3_999, "koord-free"), (4_000, ""), (4_500, ""),
        (4_999, ""), (5_000, "koord-batch"), (5_999, "koord-batch"), (6_000, ""), (6_500, ""),
        (6_999, ""), (7_000, "koord-mid"), (7_999, "koord-mid"), (8_000, ""), (8_500, ""),
        (8_999, ""), (9_000, "koord-prod"), (9_999, "koord-prod"), (10_000, ""),
        (2_000_001_000, ""), (0, ""), (None, ""),
    ],
)  # fmt: skip
def test_the_bands_end_where_their_class_does(priority: int | None, name: str) -> None:
    """In a gap the QoS class decides: of a service it is production."""
    service = Pod(uid="p", namespace="n", name="p", kube_qos="Burstable", priority=priority)

    assert band_of(priority) == name
    assert effective_priority_class(service) == (name or "koord-prod")
