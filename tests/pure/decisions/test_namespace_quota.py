"""A namespace's quotas: prod and mid are refused beyond them, batch borrows what is idle, free has none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.errors import BadMessageError
from slacktide.schemas.inventory import Resources
from slacktide.streams.decisions.admission.namespace_quota import (
    Held,
    annotation_of,
    borrowed_text,
    in_vain_text,
    judged,
    quotas_of,
    refusal_text,
)
from testbed.vectors import each_row

PROD = Resources(cpu_milli=2_000, mem_bytes=1 << 30)
MID = Resources(mid_cpu_milli=2_000, mid_mem_bytes=1 << 30)
BATCH = Resources(batch_cpu_milli=2_000, batch_mem_bytes=1 << 30)
FREE = Resources(free_cpu_milli=2_000)
BANDS = {"prod": PROD, "mid": MID, "batch": BATCH}
BORROWED = Held(BATCH, borrowed=True)


def quotas(**annotations: str) -> Any:
    return quotas_of({f"quota.slacktide.io/{name.replace('_', '-')}": text for name, text in annotations.items()})


def test_each_band_but_free_has_quotas_in_the_unit_of_its_resource() -> None:
    annotations = {
        "quota.slacktide.io/batch-cpu": "8k",
        "quota.slacktide.io/prod-cpu": "1500m",
        "quota.slacktide.io/prod-memory": "1Gi",
        "quota.slacktide.io/mid-memory": "2Gi",
        "quota.slacktide.io/free-memory": "much",
        "quota.slacktide.io/other": "1",
        "batch-cpu": "1",
    }
    read = quotas_of(annotations)

    assert read.bounds == {"cpu_milli": 1_500, "mem_bytes": 1 << 30, "mid_mem_bytes": 2 << 30, "batch_cpu_milli": 8_000}
    assert read.in_vain == ["quota.slacktide.io/free-memory"]
    assert quotas_of({}).bounds == {}
    assert quotas(batch_cpu=str(2**63 - 1)).bounds == {"batch_cpu_milli": 2**63 - 1}


@pytest.mark.parametrize("text", ["much", "-1", "1e30"])
def test_a_quota_that_is_no_amount_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(BadMessageError, match=r"quota\.slacktide\.io/batch-cpu"):
        quotas(batch_cpu=text)


@pytest.mark.parametrize("text", ["Never", "", "always", "sometimes"])
def test_borrowing_is_switched_off_by_one_word_alone(text: str) -> None:
    with pytest.raises(BadMessageError, match=r"batch-borrowing.*accepted: never"):
        quotas(batch_borrowing=text)

    assert quotas().borrows
    assert not quotas(batch_borrowing="never").borrows


@each_row("given", "there", "asked", "result")
def test_success_is_certain_within_a_quota(given: dict[str, str], there: list[str], asked: str, result: str) -> None:
    found = judged(quotas(**given), BANDS[asked], [Held(BANDS[band]) for band in there])

    assert found.result == result
    assert (found.exceeded is None) is (result == "admitted")


def test_what_is_borrowed_uses_no_quota_unless_nothing_may_be_borrowed() -> None:
    within = quotas(batch_cpu="4000")
    strict = quotas(batch_cpu="4000", batch_borrowing="never")
    there = [BORROWED, BORROWED, Held(BATCH)]

    assert judged(within, BATCH, there).result == "admitted", "a pod has ended, and its place is free again"
    assert judged(within, BATCH, [*there, Held(BATCH)]).result == "borrowed"
    assert judged(strict, BATCH, there).exceeded.used == 6_000


def test_a_pod_beyond_a_quota_of_prod_does_not_borrow_even_if_it_is_beyond_that_of_batch_too() -> None:
    both = Resources(cpu_milli=1, batch_cpu_milli=1)
    found = judged(quotas(prod_cpu="0", batch_cpu="0"), both, [])

    assert (found.result, found.band) == ("over_quota", "prod")


def test_free_has_no_quota_and_a_record_of_its_own_where_others_have() -> None:
    given = quotas(free_cpu="1", batch_cpu="1")
    found = judged(given, FREE, [])

    assert not given.counts(FREE)
    assert given.concerns(FREE)
    assert quotas(free_cpu="1").concerns(FREE)
    assert quotas(batch_cpu="1").concerns(FREE)
    assert (found.result, found.band) == ("admitted", "free")
    assert [(one.resource, one.asked, one.quota) for one in found.uses] == [("free_cpu_milli", 2_000, None)]
    assert not quotas().concerns(FREE)


def test_only_what_has_a_quota_and_is_requested_is_counted() -> None:
    both = Resources(cpu_milli=1, batch_cpu_milli=2)
    for name, asked in (("prod_cpu", PROD), ("mid_cpu", MID), ("batch_cpu", BATCH)):
        [use] = judged(quotas(**{name: "9k"}), asked, [Held(FREE)]).uses
        assert (use.asked, use.used) == (2_000, 0)
    assert judged(quotas(prod_cpu="1", batch_cpu="9"), both, []).band == "prod"
    assert not quotas(mid_cpu="1").concerns(BATCH)
    assert quotas(batch_cpu="1").counts(BATCH)
    assert not quotas(mid_cpu="1").counts(BATCH)
    assert not quotas(batch_cpu="1").concerns(PROD)
    assert not quotas().concerns(BATCH)


def test_answers_name_the_resource_what_is_used_and_the_quota() -> None:
    prod = judged(quotas(prod_cpu="3"), PROD, [Held(PROD)]).exceeded
    batch = judged(quotas(batch_cpu="3000"), BATCH, [Held(BATCH)]).exceeded

    assert refusal_text("team-a", prod) == (
        "exceeded quota of namespace team-a: requested cpu=2000m, used 2000m, limited to 3000m by its annotation "
        "quota.slacktide.io/prod-cpu"
    )
    memory = judged(quotas(prod_memory="1"), PROD, []).exceeded
    assert "requested memory=1073741824, used 0, limited to 1 by" in refusal_text("team-a", memory)
    assert refusal_text("team-a", batch) == (
        "exceeded quota of namespace team-a: requested kubernetes.io/batch-cpu=2000, used 2000, limited to 3000 by its "
        "annotation quota.slacktide.io/batch-cpu"
    )
    assert borrowed_text("team-a", batch) == (
        "beyond the quota of namespace team-a: requested kubernetes.io/batch-cpu=2000, used 2000, quota 3000; the pod "
        "borrows idle resources, and is evicted first"
    )
    assert len(borrowed_text("n" * 63, batch)) < 256, "the API server cuts longer warnings"
    assert "annotation quota.slacktide.io/free-cpu has no effect" in in_vain_text("quota.slacktide.io/free-cpu")
    assert annotation_of("cpu_milli") == "quota.slacktide.io/prod-cpu"
    assert annotation_of("of a later version") == "quota.slacktide.io/of a later version"


ASKS = st.sampled_from([PROD, MID, BATCH, FREE, Resources(batch_cpu_milli=500)])


@given(st.lists(ASKS, max_size=12), st.integers(0, 6_000), st.booleans())
def test_pods_that_were_not_marked_never_exceed_a_quota(asks: list[Resources], bound: int, strict: bool) -> None:  # noqa: FBT001
    more = {"batch_borrowing": "never"} if strict else {}
    given = quotas(batch_cpu=str(bound), mid_cpu=str(bound), prod_cpu=f"{bound}m", **more)
    there: list[Held] = []
    for asked in asks:
        found = judged(given, asked, there)
        assert found.result == "admitted" or asked is not FREE
        if found.result != "over_quota":
            there.append(Held(asked, found.result == "borrowed"))

    for field in ("cpu_milli", "mid_cpu_milli", "batch_cpu_milli"):
        assert sum(getattr(one.requests, field) or 0 for one in there if not one.borrowed) <= bound
    assert all(one.requests.batch_cpu_milli and not strict for one in there if one.borrowed)
