"""Which class a priority is of: one of four bands, or none in the gaps between them."""

from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.inventory import Pod
from slacktide.schemas.qos import BANDS, band_of, effective_priority_class
from testbed.vectors import each_row


@given(st.integers(-(2**31), 2**31 - 1) | st.integers(2_900, 10_100))
def test_each_priority_is_of_one_class_or_of_none(priority: int) -> None:
    of = [name for name, (low, high) in BANDS.items() if low <= priority <= high]

    assert len(of) <= 1
    assert band_of(priority) == "".join(of)


@each_row("priority", "name")
def test_the_bands_end_where_their_class_does(priority: int | None, name: str) -> None:
    """In a gap the QoS class decides: of a service it is production."""
    service = Pod(uid="p", namespace="n", name="p", kube_qos="Burstable", priority=priority)

    assert band_of(priority) == name
    assert effective_priority_class(service) == (name or "koord-prod")
