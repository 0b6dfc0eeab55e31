"""What a node itself says over the colocation strategy."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slacktide.schemas.policy.effective import (
    ANNOTATION_STRATEGY,
    FIELDS,
    RATIO_LABELS,
    annotation_fields,
    overlaid,
    ratio_pct,
)
from slacktide.schemas.policy.strategies import Colocation
from testbed.vectors import each_row

CPU_RATIO = "node.koordinator.sh/cpu-reclaim-ratio"


@each_row("text", "pct")
def test_a_ratio_label_is_a_percent_truncated_as_a_double(text: str, pct: int | None) -> None:
    assert ratio_pct(text) == pct


@each_row("text", "said")
def test_an_annotation_of_other_types_is_ignored_whole(text: str, said: dict) -> None:
    assert annotation_fields(text) == said


def test_labels_stand_above_the_annotation_and_the_annotation_above_the_strategy() -> None:
    annotation = '{"cpuReclaimThresholdPercent": 70, "memoryReclaimThresholdPercent": 71}'
    found, sources = overlaid(Colocation(), {ANNOTATION_STRATEGY: annotation}, {CPU_RATIO: "0.8", "other": "0.1"})

    assert (found.cpu_reclaim_threshold_pct, found.mem_reclaim_threshold_pct) == (80, 71)
    assert sources == {"cpu_reclaim_threshold_pct": CPU_RATIO, "mem_reclaim_threshold_pct": ANNOTATION_STRATEGY}


def test_a_node_that_says_nothing_has_the_strategy_itself() -> None:
    strategy = Colocation(enable=True)

    assert overlaid(strategy, {}, {})[0] is strategy
    assert overlaid(strategy, {ANNOTATION_STRATEGY: "{"}, {CPU_RATIO: "-1"}) == (strategy, {})


@pytest.mark.parametrize(("label", "field"), RATIO_LABELS.items())
def test_each_label_sets_its_field(label: str, field: str) -> None:
    assert overlaid(Colocation(), {}, {label: "0.11"}) == (
        msgspec.structs.replace(Colocation(), **{field: 11}), {field: label}
    )  # fmt: skip


def test_every_key_of_the_annotation_names_a_field() -> None:
    assert set(FIELDS.values()) <= set(Colocation.__struct_fields__)


@given(st.text(), st.text())
def test_no_text_of_a_node_is_ever_an_error(annotation: str, label: str) -> None:
    overlaid(Colocation(), {ANNOTATION_STRATEGY: annotation}, dict.fromkeys(RATIO_LABELS, label))
