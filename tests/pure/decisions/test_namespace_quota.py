"""A namespace's own bounds on batch, mid and free resources."""

from __future__ import annotations

import pytest

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.admission.qos_priority_admit import bounded, bounds_of, exceeded, refusal_text

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


@pytest.mark.parametrize(
    ("bounds", "there", "resource"),
    [
        pytest.param({"batch_cpu_milli": 4_000}, [BATCH], None, id="exactly"),
        pytest.param({"batch_cpu_milli": 3_999}, [BATCH], "batch_cpu_milli", id="one more than the bound"),
        pytest.param({"batch_cpu_milli": 9_000}, [BATCH], None, id="less than the bound"),
        pytest.param({"batch_cpu_milli": 2_000}, [Resources()], None, id="others that request none of it"),
        pytest.param({"batch_cpu_milli": 1_999}, [Resources()], "batch_cpu_milli", id="which leave no more"),
        pytest.param({"batch_cpu_milli": 0}, [], "batch_cpu_milli", id="none at all"),
        pytest.param({"batch_mem_bytes": 1 << 30}, [BATCH], "batch_mem_bytes", id="memory"),
        pytest.param({"free_cpu_milli": 0}, [Resources(free_cpu_milli=9)], None, id="what it does not request"),
    ],
)
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
