"""A namespace's own bounds on batch, mid and free resources."""

from __future__ import annotations

import pytest

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.admission.qos_priority_admit import bounded, bounds_of, exceeded, refusal_text
from testbed.vectors import each_row

BATCH = Resources(batch_cpu_milli=2_000, batch_mem_bytes=1 << 30)


def test_each_resource_that_is_sold_may_have_a_bound() -> None:
    annotations = {
        "quota.slacktide.io/batch-cpu": "8k",
        "quota.slacktide.io/free-memory": "2Gi",
        "quota.slacktide.io/other": "1",
        "batch-cpu": "1",
    }

    assert bounds_of(annotations) == {"batch_cpu_milli": 8_000, "free_mem_bytes": 2 << 30}
    assert bounds_of({}) == {}


def test_a_bound_that_is_no_amount_is_refused_by_its_name() -> None:
    with pytest.raises(BadMessageError, match=r"quota\.slacktide\.io/batch-cpu"):
        bounds_of({"quota.slacktide.io/batch-cpu": "much"})


@each_row("bounds", "there", "resource")
def test_a_pod_fits_up_to_the_bound(bounds: dict, there: list[Resources], resource: str | None) -> None:
    found = exceeded(bounds, there, BATCH)

    assert (None if found is None else found.resource) == resource


def test_only_what_is_bounded_and_requested_is_counted() -> None:
    assert bounded({"batch_cpu_milli": 1}, BATCH)
    assert not bounded({"free_cpu_milli": 1}, BATCH)
    assert not bounded({}, BATCH)


def test_a_refusal_names_the_resource_what_is_used_and_the_annotation() -> None:
    found = exceeded({"batch_cpu_milli": 3_000}, [BATCH], BATCH)

    assert found is not None
    assert refusal_text("team-a", found) == (
        "exceeded quota of namespace team-a: requested kubernetes.io/batch-cpu=2000, used 2000, limited to 3000 by its "
        "annotation quota.slacktide.io/batch-cpu"
    )
